"""FeDLaS (ECCV 2026) step by step: base loss, norm-based confidence (NCI), learned gate (BCG).

Two chains: on label smoothing, and on the margin penalty of MbLS. NCI alone is the gate fixed
at +1: samples with large features are smoothed more.
"""

from ablations._plain import PLAIN
from tune_calib.spec.ladder import LADDERS, Ladder, Rung


def _network(method: str, **params: str) -> dict[str, dict[str, str]]:
    return {"network": {"method": method, **params}}


LADDERS.register(
    Ladder(
        name="fedlas",
        title="FeDLaS: base, + NCI, + BCG, on LS and on MbLS",
        rungs=(
            Rung("LS", "label smoothing", _network("ls"), kind="base"),
            Rung("LS + NCI", "gate fixed at +1", _network("fedlas_ls", gate="positive")),
            Rung("LS + NCI + BCG", "learned gate: FeDLaS-LS", _network("fedlas_ls")),
            # A second base begins a second chain: its steps are compared with MbLS, not with LS.
            Rung("MbLS", "margin-based label smoothing", _network("mbls"), kind="base"),
            Rung("MbLS + NCI", "gate fixed at +1", _network("fedlas_mbls", gate="positive")),
            Rung("MbLS + NCI + BCG", "learned gate: FeDLaS-MbLS", _network("fedlas_mbls")),
            PLAIN,
        ),
    ),
)
