"""Kolmogorov-Smirnov calibration error (Gupta et al., ICLR 2021)."""

from torch import Tensor

from tune_calib.spec.metrics import METRICS, Metric


def ks_error(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest distance of cumulative confidence and correctness, in [0, 1]."""
    confidence, predicted = logits.softmax(1).max(1)
    order = confidence.argsort()
    gaps = (confidence - (predicted == labels).double())[order]
    return gaps.cumsum(0).abs().max() / len(labels)


METRICS.register(Metric("ks", "KS error", "min", "fraction", compute=ks_error))
