"""Calibration errors of samples sorted by confidence.

These are the debiased ECE (Kumar et al., 2019), the sweep ECE (Roelofs et al., 2022) and, without
bins, the Kolmogorov-Smirnov error (Gupta et al., ICLR 2021). An equal-mass bin holds N // B samples
or one more. The larger bins come first, as in ``numpy.array_split`` and in the code of Kumar et al.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tune_calib.metrics.ranked import Ranked, cumulated
from tune_calib.metrics.samples import BinSums, Samples

# More bins occur only where confidence separates correct from wrong predictions perfectly, and the
# ECE then hardly changes.
MOST_BINS = 500
_ROUNDING = 1e-12


def debiased_ece(samples: Samples) -> Tensor:
    """Return the root of the debiased squared error over equal-mass bins, (...), in [0, 1].

    See Kumar, Liang, Ma, NeurIPS 2019, eq. 5. The expected contribution of chance is subtracted
    from the squared gap of each bin, so that, unlike that of the plug-in error, its square is
    correct on average. It is 0 where more is subtracted than the squared gaps amount to. A bin with
    fewer than two samples counts as 0. Samples of equal confidence share a bin: part of them would
    have the same gap, from which more would be subtracted.
    """
    count, right, over = _equal_mass_sums(samples)
    return debiased(count, right, over).sqrt()


def plug_in_ece(samples: Samples) -> Tensor:
    """Return the same error without subtracting the contribution of chance."""
    count, right, over = _equal_mass_sums(samples)
    # Without hits there is no variance to subtract.
    return debiased(count, 0 * right, over).sqrt()


def _equal_mass_sums(samples: Samples) -> BinSums:
    ranked = samples.ranked
    sums = _in_bins(ranked, samples.bins, is_divided=False)[1]
    return sums(ranked.count), sums(ranked.right), sums(ranked.over)


def debiased(count: Tensor, right: Tensor, over: Tensor) -> Tensor:
    """Return the debiased squared error (...), clipped at 0, from sums over bins.

    They are the number of samples, of hits, and the sum of score minus hit, each (..., B).
    """
    some = count.clamp(min=2)
    accuracy = right / some
    squares = (over / some).square() - accuracy * (1 - accuracy) / (some - 1)
    shares = torch.where(count > 1, count, 0) / count.sum(-1, keepdim=True)
    return (shares * squares).sum(-1).clamp(min=0)


def sweep_ece(samples: Samples) -> Tensor:
    """Return the ECE over as many equal-mass bins as keep accuracy monotone, (...), in [0, 1].

    This is algorithm 1 of Roelofs et al. (AISTATS 2022): the number of bins grows from 2, up to
    ``MOST_BINS``, while the accuracies of the bins increase with confidence.
    """
    ranked = samples.ranked
    most = torch.ones_like(ranked.count[..., 0], dtype=torch.int64)  # bins in order
    is_in_order = most > 0
    for bins in range(2, min(ranked.samples, MOST_BINS) + 1):
        sizes, sums = _in_bins(ranked, bins)
        accuracy = sums(ranked.right) / sizes
        is_in_order &= (accuracy.diff(dim=-1) > -_ROUNDING).all(-1)
        if not bool(is_in_order.any()):
            break
        most = torch.where(is_in_order, bins, most)
    errors = ranked.over[..., -1].abs() / ranked.samples
    # Differences are summed only over the final bins: they cost more than the accuracies.
    for bins in most.unique().tolist():
        if bins > 1:
            over = _in_bins(ranked, bins)[1](ranked.over)
            errors = torch.where(most == bins, over.abs().sum(-1) / ranked.samples, errors)
    return errors


def ks_error(samples: Samples) -> Tensor:
    """Return the largest distance between the cumulative sums of confidence and correctness.

    Samples are added in order of increasing confidence. Samples of equal confidence are added
    together. The result is (...), in [0, 1].
    """
    ranked = samples.ranked
    return (ranked.over[..., 1:].abs() * ranked.ranking.is_end).amax(-1) / ranked.samples


def _in_bins(
    ranked: Ranked, bins: int, is_divided: bool = True
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the number of samples in each bin, (B,), and the function that sums over bins.

    Without ``is_divided``, the sizes are those before equal scores are joined.
    """
    least, more = divmod(ranked.samples, bins)
    numbers = torch.arange(bins, device=ranked.count.device)
    sizes = least + (numbers < more).to(ranked.count.dtype)
    return sizes, ranked.between(cumulated(sizes), is_divided)
