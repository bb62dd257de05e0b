"""The methods of the published reproduction of TST (Khodaverdian et al., TMLR 2025).

TST is by Jordahn and Olmos, arXiv 2405.01196. All heads are retrained with the recipe of its
authors; ``decoupling`` has more steps and shares these trials.
"""

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_LINEAR = {"method": "retrain", "start": "fresh"}

LADDERS.register(
    Ladder(
        name="two_stage",
        title="Two-stage training beside temperature scaling",
        published="tst/reproduction",
        head_recipe="tst",
        rungs=(
            Rung("base", "the network's own head", published="Base", kind="base"),
            Rung(
                "temperature",
                "its logits divided by one number",
                {"posthoc": {"method": "temperature"}},
                published="TS",
                kind="variant",
            ),
            Rung(
                "fresh linear",
                "the same layer with fresh weights",
                {"head": _LINEAR},
                published="Linear",
                kind="variant",
            ),
            Rung(
                "TST",
                "a larger head",
                {"head": {"method": "tst"}},
                published="TST",
                kind="variant",
            ),
            Rung(
                "V-TST",
                "a Gaussian last hidden layer",
                {"head": {"method": "vtst"}},
                published="V-TST",
                kind="variant",
            ),
        ),
    ),
)
