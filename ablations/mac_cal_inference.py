"""Masks only at inference, the starting point of MaC-Cal (figure 1 of arXiv 2508.09116).

The network keeps its own head and nothing is trained; ``mac_cal_readings`` ends with these rungs.
Last comes the method, which trains a head under masks.
"""

from ablations._at_inference import at_inference
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

# The defaults, explicit so that no setting of the rungs above applies to this one.
_METHOD = {
    "method": "mac_cal",
    "start": "fresh",
    "masking": "destructive",
    "evaluation": "dense",
}

LADDERS.register(
    Ladder(
        name="mac_cal_inference",
        title="Masks at inference alone",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            *at_inference(),
            Rung(
                "MaC-Cal",
                "a head trained under masks",
                {"head": _METHOD},
                kind="variant",
            ),
        ),
    ),
)
