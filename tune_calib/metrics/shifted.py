"""Metrics on a corrupted test split: only cheap ones, since there are dozens of such splits."""

import torch
from torch import Tensor

from tune_calib.metrics.binning import top_label
from tune_calib.metrics.bootstrap import some_at_a_time
from tune_calib.metrics.calibration import aece, ece_of
from tune_calib.metrics.resampled import in_bins, table_of
from tune_calib.metrics.scoring import brier
from tune_calib.metrics.summary import regime
from tune_calib.spec.metrics import CORRUPTION_METRICS


def under_corruption(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute ``names.CORRUPTION_METRICS`` of one classifier.

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


def drawn_under_corruption(logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Compute accuracy and ECE of one classifier on each bootstrap draw.

    Only these two metrics, which papers report, are resampled. Keeping the draws of all metrics for
    dozens of corrupted splits would take too much space.

    Args:
        logits: (N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        weights: (R, N), as returned by ``bootstrap.draw``; each row sums to N.

    Returns:
        A tensor (R,), float64, for each name.
    """
    confidence, correct = top_label(logits.double().softmax(-1), labels)
    bins = in_bins(confidence)
    over = bins * (confidence - correct)[:, None]
    summed = torch.cat([correct[:, None], bins, over], -1)
    sums = torch.cat([part @ summed for part in some_at_a_time(weights.to(labels.device))])
    right, count, gaps = sums.split([1, bins.shape[-1], bins.shape[-1]], -1)
    samples = len(labels)
    return {"accuracy": right[:, 0] / samples, "ece": ece_of(table_of(count, gaps), samples)}
