"""Separation of correct and wrong predictions by confidence: AURC, E-AURC and AUROC.

Sources: Geifman, Uziel, El-Yaniv, ICLR 2019 (AURC, E-AURC); Hendrycks and Gimpel, ICLR 2017 (AUROC
of misclassification). Results are averages over all orders of samples of equal confidence.
"""

import torch
from torch import Tensor

from tune_calib.metrics.ranked import Ranked, cumulated, pick


def aurc(ranked: Ranked) -> Tensor:
    """Return the area under the risk-coverage curve, (...), in [0, 1].

    It is the mean over n of the error rate of the n most confident samples.
    """
    total = ranked.samples
    # Ranks before and after each group of equal confidence, counted from the most confident.
    low, high = _around(ranked, ranked.count)
    before, after = total - high, total - low
    right_low, right_high = _around(ranked, ranked.right)
    errors = after - before - (right_high - right_low)
    harmonic = _harmonic(ranked)
    known_before, known_after = harmonic[before.long()], harmonic[after.long()]
    # Each error of a group is at a random position within it, and from there on contributes 1/n to
    # the risk of the first n samples.
    size = (after - before).clamp(min=1)
    own = 1 - before / size * (known_after - known_before)
    areas = errors * (own + harmonic[total] - known_after)
    return _summed(ranked, areas) / total


def e_aurc(ranked: Ranked, area: Tensor) -> Tensor:
    """Return the AURC (given) minus that of an ideal order, with all correct samples first."""
    total, right = ranked.samples, ranked.right[..., -1]
    harmonic = _harmonic(ranked)
    least = 1 - right / total * (1 + harmonic[total] - harmonic[right.round().long()])
    # Both sums are rounded, so an ideal order could fall below 0.
    return (area - least).clamp(min=0)


def error_auroc(ranked: Ranked) -> Tensor:
    """Return the probability that a correct sample is more confident than a wrong one.

    Ties count as half. The result is (...), in [0, 1]; NaN where all samples are correct or all are
    wrong.
    """
    (before, after), (low, high) = _around(ranked, ranked.count), _around(ranked, ranked.right)
    errors = after - before - (high - low)
    right = ranked.right[..., -1]
    # The correct samples of higher confidence, and half of those of equal confidence.
    above = right[..., None] - (low + high) / 2
    return _summed(ranked, errors * above) / (right * (ranked.samples - right))


def mean_where(values: Tensor, counts: Tensor) -> Tensor:
    """Return the weighted mean of values (..., N), or NaN where all weights (..., N) are 0."""
    return (values * counts).sum(-1) / counts.sum(-1)


def _around(ranked: Ranked, cumulative: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums below and including each group of equal confidence that has errors."""
    ranks, first = ranked.with_errors, ranked.ranking.first
    return pick(cumulative, first[..., ranks]), cumulative[..., ranks + 1]


def _summed(ranked: Ranked, values: Tensor) -> Tensor:
    """Sum over the groups of equal confidence that have errors, counting each group once."""
    return (values * ranked.ranking.is_end[..., ranked.with_errors]).sum(-1)


def _harmonic(ranked: Ranked) -> Tensor:
    """Return the harmonic numbers 0 to N, (N + 1,)."""
    numbers = torch.arange(1, ranked.samples + 1, device=ranked.count.device)
    return cumulated(1 / numbers.double())
