"""What each method costs against vanilla (table 4 of MaC-Cal, arXiv 2508.09116).

The table has seconds of training on the authors' GPU. FeDLaS and temperature scaling, which it
lacks, are added. Train all networks on one idle machine, and do not take them from a store that
another machine filled.
"""

from typing import Any

from tune_calib.spec.ladder import LADDERS, Ladder, Rung


def _rung(slot: str, method: str, printed: str | None = None) -> Rung:
    slots: dict[str, Any] = {slot: {"method": method}}
    return Rung(method, f"{slot} method", slots, published=printed, kind="variant")


LADDERS.register(
    Ladder(
        name="cost",
        title="What methods cost",
        published="maccal/table4",
        rungs=(
            Rung("vanilla", "the network alone", published="Vanilla", kind="base"),
            _rung("network", "mit_a", "MIT"),
            _rung("network", "balcal", "BalCAL"),
            _rung("network", "fedlas_ls"),
            _rung("network", "fedlas_mbls"),
            _rung("head", "retrain"),
            _rung("head", "tst", "TST"),
            _rung("head", "vtst", "VTST"),
            _rung("head", "mac_cal", "MaC-Cal"),
            _rung("posthoc", "temperature"),
        ),
    ),
)
