"""The target of MaC-Cal's confidence: gamma over its range (figure 7 of arXiv 2508.09116).

The paper reports that the result depends little on gamma, but not the value it used. With our
extension ``val_ratio``, gamma is the network's own ratio of the accuracy on ``select`` to that on
``train``.
"""

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_GAMMAS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, "val_ratio")


def _rung(gamma: float | str) -> Rung:
    is_ratio = gamma == "val_ratio"
    text = "accuracy on select over that on train" if is_ratio else "confidence over accuracy"
    head = {"method": "mac_cal", "gamma": gamma}
    return Rung(f"gamma {gamma}", text, {"head": head}, kind="variant")


LADDERS.register(
    Ladder(
        name="mac_cal_gamma",
        title="MaC-Cal: gamma, the target of confidence over accuracy",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            *(_rung(gamma) for gamma in _GAMMAS),
        ),
    ),
)
