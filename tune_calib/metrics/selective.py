"""Separation of right and wrong by confidence: AURC, E-AURC, AUROC; entropy of both.

Sources: Geifman, Uziel, El-Yaniv, ICLR 2019 (AURC, E-AURC); Hendrycks and Gimpel, ICLR 2017 (AUROC
of misclassification). Samples of equal confidence are taken in every order alike.
"""

import torch
from torch import Tensor

from tune_calib.metrics.ranked import Ranked, pick, top_ranked


def aurc(probs: Tensor, labels: Tensor) -> Tensor:
    """Area under the risk-coverage curve: mean over n of the risk of the n most confident samples.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.

    Returns:
        (...), in [0, 1].

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    return aurc_of(top_ranked(probs, labels))


def e_aurc(probs: Tensor, labels: Tensor) -> Tensor:
    """AURC minus that of a confidence that puts all right samples first; arguments as ``aurc``."""
    ranked = top_ranked(probs, labels)
    return e_aurc_of(ranked, aurc_of(ranked))


def error_auroc(probs: Tensor, labels: Tensor) -> Tensor:
    """Probability that a right sample is more confident than a wrong one, ties counted half.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.

    Returns:
        (...), in [0, 1]; NaN where all are right or all are wrong.

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    return error_auroc_of(top_ranked(probs, labels))


def aurc_of(ranked: Ranked) -> Tensor:
    """Compute ``aurc`` of ranked samples."""
    total = ranked.samples
    # Counted from the most confident: before samples of equal confidence, and after them.
    low, high = _around(ranked, ranked.count)
    before, after = total - high, total - low
    errors = after - before - _within(ranked, ranked.right)
    harmonic = _harmonic(ranked)
    known_before, known_after = harmonic[before.long()], harmonic[after.long()]
    # Each of these errors is at a place that is drawn among theirs, and counts with 1/n in the risk
    # of the n first from there on.
    size = (after - before).clamp(min=1)
    own = 1 - before / size * (known_after - known_before)
    areas = errors * (own + harmonic[total] - known_after)
    return _summed(ranked, areas) / total


def e_aurc_of(ranked: Ranked, area: Tensor) -> Tensor:
    """Compute ``e_aurc`` of ranked samples, given their ``aurc_of``."""
    # Both sums are rounded: an ideal order would fall below 0.
    return (area - _least_aurc_of(ranked)).clamp(min=0)


def _least_aurc_of(ranked: Ranked) -> Tensor:
    """The AURC of the best order, of ranked samples."""
    total, right = ranked.samples, ranked.right[..., -1]
    harmonic = _harmonic(ranked)
    return 1 - right / total * (1 + harmonic[total] - harmonic[right.round().long()])


def error_auroc_of(ranked: Ranked) -> Tensor:
    """Compute ``error_auroc`` of ranked samples."""
    errors = _within(ranked, ranked.count) - _within(ranked, ranked.right)
    low, high = _around(ranked, ranked.right)
    right = ranked.right[..., -1]
    # Of right samples: those above, and half of those beside.
    above = right[..., None] - (low + high) / 2
    return _summed(ranked, errors * above) / (right * (ranked.samples - right))


def mean_where(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of values (..., N) with their weights (..., N); NaN where all weights are 0."""
    return (values * counts).sum(-1) / counts.sum(-1)


def _around(ranked: Ranked, cumulative: Tensor) -> tuple[Tensor, Tensor]:
    """Sums below and up to the samples of equal confidence, of those with errors."""
    ranks, first = ranked.with_errors, ranked.ranking.first
    return pick(cumulative, first[..., ranks]), cumulative[..., ranks + 1]


def _within(ranked: Ranked, cumulative: Tensor) -> Tensor:
    low, high = _around(ranked, cumulative)
    return high - low


def _summed(ranked: Ranked, values: Tensor) -> Tensor:
    """Sum over groups of samples with equal confidence and errors, each counted once."""
    return (values * ranked.ranking.is_end[..., ranked.with_errors]).sum(-1)


def _harmonic(ranked: Ranked) -> Tensor:
    """Sums of 1/n, (N + 1,)."""
    numbers = torch.arange(1, ranked.samples + 1, device=ranked.count.device)
    sums = torch.zeros(ranked.samples + 1, dtype=torch.float64, device=numbers.device)
    torch.cumsum(1 / numbers.double(), 0, out=sums[1:])
    return sums
