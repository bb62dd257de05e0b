"""Metrics of a corrupted test split: those that are cheap, since there are dozens of them."""

from torch import Tensor

from tune_calib.metrics.calibration import aece
from tune_calib.metrics.scoring import brier
from tune_calib.metrics.summary import regime
from tune_calib.names import CORRUPTION_METRICS


def under_corruption(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """``names.CORRUPTION_METRICS`` of one classifier.

    Args:
        logits: (N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.

    Raises:
        ValueError: an input is out of range or not finite.
    """
    probs = logits.softmax(-1)
    found = {
        **regime(logits, labels),
        "aece": aece(probs, labels),
        "brier": brier(probs, labels),
    }
    return {name: float(found[name]) for name in CORRUPTION_METRICS}
