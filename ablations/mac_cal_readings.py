"""The readings of MaC-Cal's equations 8 to 13 (arXiv 2508.09116), compared.

The paper leaves open where a mask acts, when it is drawn, and which head is evaluated
(docs/pages/methods/index.md#mac-cal). The last rungs mask only at inference, on the network's own
head, as the paper's figure 1 does. Settings that a rung does not name keep their defaults,
including the learning rate, though each reading has its own best one.
"""

from collections.abc import Iterator
from typing import Any

from ablations._at_inference import at_inference
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_EVALUATIONS = {
    "dense": "the stored weights",
    "expected": "q times the weights",
    "last_mask": "the weights under the last mask",
    "mc": "probabilities of 20 masks, averaged",
}


def _rung(label: str, text: str, **own: Any) -> Rung:
    # Explicit, so that `--set head.start` does not apply to a reading that trains.
    head = {"method": "mac_cal", "start": "fresh", **own}
    return Rung(label, text, {"head": head}, kind="variant")


def _in_place() -> Iterator[Rung]:
    """Yield the readings that mask the stored weights; two of the evaluations would mask twice."""
    for refresh in ("epoch", "batch"):
        for evaluation in ("dense", "last_mask"):
            own = {"masking": "destructive", "refresh": refresh, "evaluation": evaluation}
            label = f"in place, mask per {refresh}, {evaluation}"
            yield _rung(label, _EVALUATIONS[evaluation], **own)


def _functional() -> Iterator[Rung]:
    for refresh in ("epoch", "batch"):
        for evaluation, text in _EVALUATIONS.items():
            own = {"masking": "functional", "refresh": refresh, "evaluation": evaluation}
            yield _rung(f"functional, mask per {refresh}, {evaluation}", text, **own)


LADDERS.register(
    Ladder(
        name="mac_cal_readings",
        title="MaC-Cal: the readings of its equations",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            *_in_place(),
            *_functional(),
            *at_inference(),
        ),
    ),
)
