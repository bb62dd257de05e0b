"""Sensitivity of FeDLaS-LS to alpha, beta and theta, one at a time around the published point."""

from ablations._fedlas_levels import LEVELS
from ablations._plain import PLAIN
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_MEANS = {
    "alpha": "mean amount of smoothing",
    "beta": "steepness in the indicator",
    "theta": "weight of a new batch in the moments",
}


def _rung(name: str, level: float) -> Rung:
    network = {"method": "fedlas_ls", name: level}
    return Rung(f"{name} {level:g}", _MEANS[name], {"network": network}, kind="variant")


LADDERS.register(
    Ladder(
        name="fedlas_sensitivity",
        title="FeDLaS-LS: alpha, beta and theta around the published point, one at a time",
        rungs=(
            Rung("published", "FeDLaS-LS", {"network": {"method": "fedlas_ls"}}, kind="base"),
            *(_rung(name, level) for name, levels in LEVELS.items() for level in levels),
            PLAIN,
        ),
    ),
)
