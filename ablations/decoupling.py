"""The claim of TST (Jordahn and Olmos, arXiv 2405.01196), one ingredient at a time.

Which of them calibrates: the second stage, the frozen body, the fresh weights or the larger head?
All heads are retrained with the recipe of TST's authors, so that each step changes one thing.
"""

from typing import Any

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

# head_recipe below trains these as TST's heads: with another recipe a rung would change two things.
_LINEAR = {"method": "retrain", "start": "fresh"}


def _drifting(label: str, head: dict[str, Any]) -> Rung:
    text = "batch normalisation of the frozen body in train mode"
    return Rung(f"{label}, BN train", text, {"head": {**head, "bn_mode": "train"}}, kind="variant")


LADDERS.register(
    Ladder(
        name="decoupling",
        title="Two-stage training taken apart",
        head_recipe="tst",
        rungs=(
            Rung("joint", "the network's own head", kind="base"),
            # Without it, what stage II gains might be the gain of more epochs.
            Rung(
                "joint, longer", "joint training for the epochs of stage II", adds_head_epochs=True
            ),
            Rung(
                "frozen, continued linear",
                "the same epochs, the body frozen",
                {"head": {**_LINEAR, "start": "continued"}},
            ),
            Rung("frozen, fresh linear", "fresh weights", {"head": _LINEAR}),
            Rung("frozen, fresh MLP (TST)", "a larger head", {"head": {"method": "tst"}}),
            Rung("V-TST", "a Gaussian last hidden layer", {"head": {"method": "vtst"}}),
            _drifting("fresh linear", _LINEAR),
            _drifting("TST", {"method": "tst"}),
            _drifting("V-TST", {"method": "vtst"}),
            # Without it, what TST gains might be the gain of a larger head.
            Rung(
                "TST head, end to end",
                "the larger head without a second stage",
                {"network": {"method": "tst_joint"}},
                kind="variant",
            ),
            Rung(
                "V-TST head, end to end",
                "the Gaussian layer without a second stage",
                {"network": {"method": "vtst_joint"}},
                kind="variant",
            ),
        ),
    ),
)
