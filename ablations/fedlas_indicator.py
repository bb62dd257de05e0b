"""The indicator of confidence in FeDLaS, each with and without the running normalisation.

``constant`` and ``random`` are never normalised.
"""

from collections.abc import Iterator

from ablations._plain import PLAIN
from tune_calib.spec.ladder import LADDERS, Kind, Ladder, Rung

_INDICATORS = {
    "norm_l1": "feature norm L1 (NCI)",
    "norm_l2": "feature norm L2",
    "norm_linf": "feature norm L∞",
    "max_prob": "maximum softmax",
    "max_logit": "maximum logit",
}


def _rungs() -> Iterator[Rung]:
    for indicator, label in _INDICATORS.items():
        network = {"method": "fedlas_ls", "indicator": indicator}
        kind: Kind = "base" if indicator == "norm_l1" else "variant"
        yield Rung(label, "normalised", {"network": network}, kind=kind)
        raw = {"network": {**network, "normalise": False}}
        yield Rung(f"{label}, raw", "without normalisation", raw, kind="variant")
    for indicator, text in (
        ("constant", "only the gate decides"),
        ("random", "drawn at each step"),
    ):
        network = {"method": "fedlas_ls", "indicator": indicator}
        yield Rung(indicator, text, {"network": network}, kind="variant")


LADDERS.register(
    Ladder(
        name="fedlas_indicator",
        title="FeDLaS-LS: the indicator of confidence",
        rungs=(*_rungs(), PLAIN),
    ),
)
