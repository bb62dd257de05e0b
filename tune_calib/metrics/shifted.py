"""Metrics of a corrupted test split: those that are cheap, since there are dozens of them."""

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


def drawn_under_corruption(logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Accuracy and ECE of one classifier on each draw of the samples.

    Of ``under_corruption`` what papers print: all of it, of dozens of sets, would be much to keep.

    Args:
        logits: (N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        weights: (R, N), as of ``bootstrap.draw``: N in all.

    Returns:
        Name to (R,), float64.
    """
    confidence, correct = top_label(logits.double().softmax(-1), labels)
    bins = in_bins(confidence)
    over = bins * (confidence - correct)[:, None]
    summed = torch.cat([correct[:, None], bins, over], -1)
    sums = torch.cat([part @ summed for part in some_at_a_time(weights.to(labels.device))])
    right, count, gaps = sums.split([1, bins.shape[-1], bins.shape[-1]], -1)
    samples = len(labels)
    return {"accuracy": right[:, 0] / samples, "ece": ece_of(table_of(count, gaps), samples)}
