"""The gate of FeDLaS: learned, fixed, random, or an oracle that knows what is correct."""

from ablations._plain import PLAIN
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_VARIANTS = {
    "positive": ("always +", "large norms are smoothed more"),
    "negative": ("always -", "large norms are smoothed less"),
    "random": ("random", "a fair coin for each sample and step"),
    # Not a method: it reads the labels of what it trains on.
    "oracle": ("oracle (upper bound)", "knows which training samples are right"),
}


def _variant(gate: str, label: str, ingredient: str) -> Rung:
    network = {"method": "fedlas_ls", "gate": gate}
    return Rung(label, ingredient, {"network": network}, kind="variant")


LADDERS.register(
    Ladder(
        name="fedlas_gate",
        title="FeDLaS-LS: the gate",
        rungs=(
            Rung("learned", "FeDLaS-LS", {"network": {"method": "fedlas_ls"}}, kind="base"),
            *(_variant(gate, label, text) for gate, (label, text) in _VARIANTS.items()),
            PLAIN,
        ),
    ),
)
