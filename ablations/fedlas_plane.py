"""FeDLaS-LS on a plane: alpha by beta, theta as published.

The rows and columns through the published point are trials of ``fedlas_sensitivity`` too: with one
store for both, their networks are trained once.
"""

from itertools import product

from ablations._fedlas_levels import LEVELS
from tune_calib.spec.ladder import LADDERS, Kind, Ladder, Rung


def _rung(alpha: float | None, beta: float | None) -> Rung:
    moved = {k: v for k, v in (("alpha", alpha), ("beta", beta)) if v is not None}
    label = ", ".join(f"{name} {level:g}" for name, level in moved.items()) or "published"
    network = {"method": "fedlas_ls", **moved}
    kind: Kind = "variant" if moved else "base"
    return Rung(label, "the others as published", {"network": network}, kind=kind)


LADDERS.register(
    Ladder(
        name="fedlas_plane",
        title="FeDLaS-LS: alpha by beta",
        rungs=tuple(
            # None first: the published point is the base.
            _rung(*point)
            for point in product((None, *LEVELS["alpha"]), (None, *LEVELS["beta"]))
        ),
    ),
)
