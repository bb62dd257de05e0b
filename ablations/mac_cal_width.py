"""The width of MaC-Cal's bottleneck, which the paper does not give.

The controls retrain a bottleneck of the same width without a mask, to separate the effect of the
mask from that of the width.
"""

from tune_calib.spec.ladder import LADDERS, Kind, Ladder, Rung

# None is a quarter of the features; for 64 or 512 features, D/4 equals one of the numbers.
_WIDTHS = {None: "D/4", 16: "16", 32: "32", 64: "64", 128: "128", 256: "256", 512: "512"}


def _rung(method: str, label: str, ingredient: str, width: int | None, kind: Kind) -> Rung:
    head = {"method": method, "shape": "bottleneck", "width": width}
    return Rung(f"{label} {_WIDTHS[width]}", ingredient, {"head": head}, kind=kind)


LADDERS.register(
    Ladder(
        name="mac_cal_width",
        title="MaC-Cal: the width of the bottleneck",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            *(_rung("mac_cal", "width", "masked", width, "variant") for width in _WIDTHS),
            *(_rung("retrain", "no mask, width", "the same head", w, "control") for w in _WIDTHS),
        ),
    ),
)
