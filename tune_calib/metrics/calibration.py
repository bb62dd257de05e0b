"""Calibration errors over reliability bins, over samples sorted by confidence, and without bins.

There are 15 bins of equal width unless stated otherwise. An equal-mass bin holds N // B samples or
one more; the larger bins come first, as in ``numpy.array_split`` and in the code of Kumar et al.
All errors are in [0, 1].

Sources: ECE, MCE: Naeini et al., AAAI 2015 and Guo et al., ICML 2017. AECE, classwise ECE:
Mukhoti et al., NeurIPS 2020. O-ECE, U-ECE: FeDLaS, table 4 (O-ECE + U-ECE = ECE). Debiased errors:
Kumar, Liang, Ma, NeurIPS 2019. Run ECE: Roelofs et al., AISTATS 2022. Kolmogorov-Smirnov error:
Gupta et al., ICLR 2021. Smooth ECE: Blasiok and Nakkiran, ICLR 2024.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tune_calib.metrics.binning import GRID
from tune_calib.metrics.ranked import Ranked, cumulated
from tune_calib.metrics.samples import BinSums, Samples

# More bins occur only where confidence separates correct from wrong predictions perfectly, and the
# ECE then hardly changes.
MOST_BINS = 500
_ROUNDING = 1e-12

SMALLEST = 1e-3  # bandwidth of the smooth ECE, as in the authors' package
_STEPS = 8  # towards the fixed point of the bandwidth


def ece(samples: Samples) -> Tensor:
    """Return the expected calibration error: the sum over bins of n_b/N |gap_b|."""
    return samples.table.expected_gap(samples.total)


def mce(samples: Samples) -> Tensor:
    """Return the maximum calibration error, the largest gap of a bin."""
    return samples.table.gap.abs().amax(-1)  # the gap of an empty bin is 0


def ace(samples: Samples) -> Tensor:
    """Return the average calibration error, the mean gap of the bins that are not empty."""
    table = samples.table
    return table.gap.abs().sum(-1) / (table.count > 0).sum(-1).clamp(min=1)


def rmsce(samples: Samples) -> Tensor:
    """Return the root-mean-square calibration error."""
    return (_shares(samples) * samples.table.gap.square()).sum(-1).sqrt()


def o_ece(samples: Samples) -> Tensor:
    """Return the part of the ECE in over-confident bins."""
    return (_shares(samples) * samples.table.gap.clamp(min=0)).sum(-1)


def u_ece(samples: Samples) -> Tensor:
    """Return the part of the ECE in under-confident bins."""
    return (_shares(samples) * (-samples.table.gap).clamp(min=0)).sum(-1)


def _shares(samples: Samples) -> Tensor:
    return samples.table.count / samples.total


def aece(samples: Samples) -> Tensor:
    """Return the adaptive ECE, over the bins of ``binning.adaptive_table``."""
    return samples.adaptive_error()


def cece(samples: Samples) -> Tensor:
    """Return the classwise ECE: the ECE of p[:, k] against 1[y = k], averaged over classes.

    Classes without samples count too, unlike those above the largest label in the code of Mukhoti
    et al. Bins are (lo, hi], and samples with p = 0 are in no bin.
    """
    # n_b/N |conf_b - acc_b| = |sum of (p - 1[y = k])| / N.
    errors = [gaps.abs().sum(-1) for gaps in samples.class_gaps()]
    return torch.cat(errors, -1).mean(-1) / samples.total


def classwise_debiased(samples: Samples) -> Tensor:
    """Return the debiased marginal calibration error of Kumar et al.

    It is the square root of the mean over classes of the debiased squared error of p[:, k] against
    1[y = k]. The bins are those of the classwise ECE: with many classes, all equal-mass bins but
    one would contain only samples of other classes. Samples with p = 0 are in the lowest bin.
    """
    squares = [debiased(*sums) for sums in samples.class_sums()]
    return torch.cat(squares, -1).mean(-1).sqrt()


def debiased_ece(samples: Samples) -> Tensor:
    """Return the root of the debiased squared error over equal-mass bins.

    See Kumar et al., eq. 5. The expected contribution of chance is subtracted from the squared gap
    of each bin, so that, unlike that of the plug-in error, its square is correct on average. It is
    0 where more is subtracted than the squared gaps amount to. A bin with fewer than two samples
    counts as 0. Samples of equal confidence share a bin: part of them would have the same gap, from
    which more would be subtracted.
    """
    return debiased(*_equal_mass_sums(samples)).sqrt()


def plug_in_ece(samples: Samples) -> Tensor:
    """Return the debiased ECE without subtracting the contribution of chance."""
    count, right, over = _equal_mass_sums(samples)
    # Without hits there is no variance to subtract.
    return debiased(count, 0 * right, over).sqrt()


def _equal_mass_sums(samples: Samples) -> BinSums:
    ranked = samples.ranked
    sums = _in_bins(ranked, samples.bins, is_divided=False)[1]
    return sums(ranked.count), sums(ranked.right), sums(ranked.over)


def debiased(count: Tensor, right: Tensor, over: Tensor) -> Tensor:
    """Return the debiased squared error (...), clipped at 0, from ``BinSums`` (..., B)."""
    some = count.clamp(min=2)
    accuracy = right / some
    squares = (over / some).square() - accuracy * (1 - accuracy) / (some - 1)
    shares = torch.where(count > 1, count, 0) / count.sum(-1, keepdim=True)
    return (shares * squares).sum(-1).clamp(min=0)


def sweep_ece(samples: Samples) -> Tensor:
    """Return the ECE over as many equal-mass bins as keep accuracy monotone.

    This is algorithm 1 of Roelofs et al.: the number of bins grows from 2, up to
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

    Samples are added in order of increasing confidence, those of equal confidence together.
    """
    ranked = samples.ranked
    return (ranked.over[..., 1:].abs() * ranked.ranking.is_end).amax(-1) / ranked.samples


def _in_bins(
    ranked: Ranked, bins: int, is_divided: bool = True
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the number of samples in each bin, (B,), and the function that sums over bins."""
    least, more = divmod(ranked.samples, bins)
    numbers = torch.arange(bins, device=ranked.count.device)
    sizes = least + (numbers < more).to(ranked.count.dtype)
    return sizes, ranked.between(cumulated(sizes), is_divided)


def smooth_ece(samples: Samples) -> Tensor:
    """Return the integral of the absolute smoothed difference of confidence and correctness.

    The differences are smoothed by a Gaussian that is reflected at 0 and 1. Its bandwidth is the
    one that equals the error (section 3 of the paper), but at least ``SMALLEST``.
    """
    over = samples.grid
    waves = cosine_transform(over)
    least = torch.full_like(over[..., 0], SMALLEST)
    most = smoothed(waves, least)
    # The error falls with the width, from its value at the smallest width to that of the mean.
    low = over.sum(-1).abs().clamp(min=SMALLEST)
    high = torch.maximum(most, low)
    excess, lack = (smoothed(waves, width) - width for width in (low, high))
    width, was_low = low, torch.zeros_like(low, dtype=torch.bool)
    # Regula falsi with the Illinois rule: the value at an end that stays twice is halved.
    for step in range(_STEPS):
        share = torch.where(excess > lack, excess / (excess - lack), 0)
        width = low + share * (high - low)
        difference = smoothed(waves, width) - width
        is_low = difference > 0
        stays = torch.where(is_low == was_low, 0.5, 1.0) if step else 1.0
        lack = torch.where(is_low, lack * stays, difference)
        excess = torch.where(is_low, difference, excess * stays)
        low, high = torch.where(is_low, width, low), torch.where(is_low, high, width)
        was_low = is_low
    return torch.where(most > SMALLEST, width, most)


def cosine_transform(over: Tensor) -> Tensor:
    """Return the cosine transform, via the Fourier transform of the values and their mirror."""
    # A reflected Gaussian multiplies the n-th cosine by exp(-(pi n width)^2 / 2).
    mirrored = torch.cat([2 * over[..., :1], over[..., 1:-1], 2 * over[..., -1:]], -1)
    period = torch.cat([mirrored, mirrored[..., 1:-1].flip(-1)], -1)
    waves: Tensor = torch.fft.rfft(period).real
    return waves


def smoothed(waves: Tensor, width: Tensor) -> Tensor:
    """Return the integral (...) of absolute differences, smoothed, from their cosine transform."""
    numbers = torch.arange(GRID + 1, dtype=waves.dtype, device=waves.device)
    damping = torch.exp(-0.5 * (torch.pi * numbers * width[..., None]).square())
    values: Tensor = torch.fft.irfft((waves * damping).to(torch.complex128), n=2 * GRID)
    values = values[..., : GRID + 1].abs()
    # Trapezoidal rule: each end point stands for half an interval, and so does its mirror image.
    integral: Tensor = values.sum(-1) - (values[..., 0] + values[..., -1]) / 2
    return integral
