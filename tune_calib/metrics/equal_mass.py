"""Calibration errors over bins of equal mass: debiased (Kumar et al., 2019), sweep (Roelofs, 2022).

Bins hold N // B or one more of the samples by rising confidence, the larger ones first, as
``numpy.array_split`` and the code of Kumar et al. cut them.
"""

import torch
from torch import Tensor

from tune_calib.metrics.ranked import Ranked, top_ranked

# Only confidences that tell right from wrong without fault have more bins, whose ECE then hardly
# changes.
MOST_BINS = 500
_ROUNDING = 1e-12


def debiased_ece(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Root of the debiased squared calibration error (Kumar, Liang, Ma, NeurIPS 2019, eq. 5).

    Unlike that of the plug-in error, its square is right on average: what chance adds to the
    squared gap of each bin is taken off. 0 where more is taken off than is there.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.
        bins: of equal mass; one with fewer than two samples counts 0.

    Returns:
        (...), in [0, 1].

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    return debiased_of(top_ranked(probs, labels), bins)


def sweep_ece(probs: Tensor, labels: Tensor) -> Tensor:
    """Return the ECE with most equal-mass bins of rising accuracy (Roelofs et al., AISTATS 2022).

    Their algorithm 1: the number of bins grows from 2 while the accuracies of the bins are in
    order, up to ``MOST_BINS``.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.

    Returns:
        (...), in [0, 1].

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    return sweep_of(top_ranked(probs, labels))


def debiased_of(ranked: Ranked, bins: int = 15, is_plain: bool = False) -> Tensor:
    """Compute ``debiased_ece`` of ranked samples; with ``is_plain``, the biased plug-in error."""
    sizes = _sizes(ranked, bins)
    cuts = ranked.at(_edges(sizes))
    right = cuts.between(ranked.right)
    # Without hits there is no variance to take off.
    return debiased(sizes, 0 * right if is_plain else right, cuts.between(ranked.over)).sqrt()


def debiased(count: Tensor, right: Tensor, over: Tensor) -> Tensor:
    """Debiased squared error of bins, each (..., B), at least 0: (...).

    Args:
        count: samples.
        right: sum of their hits.
        over: sum of score minus hit.
    """
    some = count.clamp(min=2)
    accuracy = right / some
    squares = (over / some).square() - accuracy * (1 - accuracy) / (some - 1)
    shares = torch.where(count > 1, count, 0) / count.sum(-1, keepdim=True)
    return (shares * squares).sum(-1).clamp(min=0)


def sweep_of(ranked: Ranked) -> Tensor:
    """Compute ``sweep_ece`` of ranked samples."""
    found = ranked.over[..., -1].abs() / ranked.samples
    is_in_order = torch.ones_like(ranked.count[..., 0], dtype=torch.bool)
    for bins in range(2, min(ranked.samples, MOST_BINS) + 1):
        sizes = _sizes(ranked, bins)
        cuts = ranked.at(_edges(sizes))
        accuracy = cuts.between(ranked.right) / sizes
        is_in_order &= (accuracy.diff(dim=-1) > -_ROUNDING).all(-1)
        if not bool(is_in_order.any()):
            break
        ece = cuts.between(ranked.over).abs().sum(-1) / ranked.samples
        found = torch.where(is_in_order, ece, found)
    return found


def _sizes(ranked: Ranked, bins: int) -> Tensor:
    """Return the number of samples in each bin, (B,)."""
    least, more = divmod(ranked.samples, bins)
    numbers = torch.arange(bins, device=ranked.count.device)
    return least + (numbers < more).to(ranked.count.dtype)


def _edges(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
