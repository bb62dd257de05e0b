"""Calibration errors over reliability bins.

Functions map probabilities (..., N, C), whose rows sum to 1, and labels (N,) int64 to errors (...),
fractions in [0, 1]. All inputs are checked by ``validation.check``, which raises ValueError. There
are 15 bins by default, of equal width unless stated otherwise.

Sources: ECE, MCE: Naeini et al., AAAI 2015 and Guo et al., ICML 2017. AECE, classwise ECE:
Mukhoti et al., NeurIPS 2020. O-ECE, U-ECE: FeDLaS, table 4 (O-ECE + U-ECE = ECE).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tune_calib.metrics.binning import BinTable, adaptive_table, bin_table, summed
from tune_calib.metrics.equal_mass import debiased
from tune_calib.metrics.validation import check

_CHUNK = 2**21  # probabilities processed at once


def ece_of(table: BinTable, samples: int) -> Tensor:
    """Return the sum over bins of n_b/N |gap_b|."""
    return (table.count / samples * table.gap.abs()).sum(-1)


def errors_of(table: BinTable, samples: int) -> dict[str, Tensor]:
    """Compute all errors over the bins of a table of so many samples, by name."""
    shares, gap = table.count / samples, table.gap
    return {
        "ece": ece_of(table, samples),
        "mce": gap.abs().amax(-1),  # the gap of an empty bin is 0
        "ace": gap.abs().sum(-1) / (table.count > 0).sum(-1).clamp(min=1),  # of non-empty bins
        "rmsce": (shares * gap.square()).sum(-1).sqrt(),
        "o_ece": (shares * gap.clamp(min=0)).sum(-1),
        "u_ece": (shares * (-gap).clamp(min=0)).sum(-1),
    }


def ece(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Return the expected calibration error."""
    return ece_of(bin_table(probs, labels, bins), len(labels))


def aece(probs: Tensor, labels: Tensor, bins: int = 15, confidence: Tensor | None = None) -> Tensor:
    """Return the adaptive ECE, over the bins of ``adaptive_table``."""
    return ece_of(adaptive_table(probs, labels, bins, confidence), len(labels))


def cece(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Return the classwise ECE: the ECE of p[:, k] against 1[y = k], averaged over classes.

    Classes without samples count too, unlike those above the largest label in the code of Mukhoti
    et al. Bins are (lo, hi], and samples with p = 0 are in no bin.
    """
    check(probs, labels)
    errors = []
    for scores, is_class, place in _by_class(probs, labels, bins):
        # Index 0 collects samples in no bin. n_b/N |conf_b - acc_b| = |sum of (p - 1[y = k])| / N.
        gaps = summed(place, scores - is_class, bins)
        errors.append(gaps.abs().sum(-1))
    return torch.cat(errors, -1).mean(-1) / len(labels)


def classwise_debiased(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Return the debiased marginal calibration error of Kumar et al. (NeurIPS 2019).

    It is the square root of the mean over classes of the debiased squared error of p[:, k] against
    1[y = k]. The bins are those of the classwise ECE: with many classes, all equal-mass bins but
    one would contain only samples of other classes. Samples with p = 0 are in the lowest bin.
    """
    check(probs, labels)
    squares = []
    for scores, is_class, place in _by_class(probs, labels, bins):
        of_sample = (torch.ones_like(scores), is_class.expand_as(scores), scores - is_class)
        sums = (summed(place.clamp(min=1), values, bins) for values in of_sample)
        squares.append(debiased(*sums))
    return torch.cat(squares, -1).mean(-1).sqrt()


def _by_class(probs: Tensor, labels: Tensor, bins: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the one-versus-rest values of a few classes at a time.

    They are the probabilities p (..., c, N), the indicators 1[y = k] (c, N) and the bin of each p
    (..., c, N): 1 to B, or 0 where p = 0.
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    numbers = torch.arange(probs.shape[-1], device=labels.device)
    # A thousand classes at once would take several times the memory of the probabilities.
    width = max(1, _CHUNK // len(labels))
    for part, classes in zip(probs.split(width, -1), numbers.split(width), strict=True):
        scores = part.transpose(-1, -2).contiguous()
        is_class = (labels == classes[:, None]).to(probs.dtype)
        yield scores, is_class, torch.bucketize(scores, edges)
