"""Calibration errors over reliability bins: (..., N, C) and (N,) to (...), fractions in [0, 1].

Sources: ECE, MCE: Naeini et al., AAAI 2015 and Guo et al., ICML 2017. AECE, classwise ECE:
Mukhoti et al., NeurIPS 2020. O-ECE, U-ECE: FeDLaS, table 4 (O-ECE + U-ECE = ECE). All inputs are
checked by ``validation.check``, which raises ValueError.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tune_calib.metrics.binning import (
    BinTable,
    Convention,
    adaptive_table,
    bin_table,
    equal_mass_table,
)
from tune_calib.metrics.equal_mass import debiased
from tune_calib.metrics.validation import check

_CHUNK = 2**21  # probabilities of classes that are worked on at once


def ece_of(table: BinTable, samples: int) -> Tensor:
    """Sum over bins of n_b/N |gap_b|."""
    return (table.count / samples * table.gap.abs()).sum(-1)


def mce_of(table: BinTable) -> Tensor:
    """Largest |gap_b|; empty bins count 0."""
    return table.gap.abs().amax(-1)


def ace_of(table: BinTable) -> Tensor:
    """Unweighted mean of |gap_b| over the bins that are not empty."""
    return table.gap.abs().sum(-1) / (table.count > 0).sum(-1).clamp(min=1)


def rmsce_of(table: BinTable, samples: int) -> Tensor:
    """Root of the sum over bins of n_b/N gap_b^2."""
    return (table.count / samples * table.gap.square()).sum(-1).sqrt()


def o_ece_of(table: BinTable, samples: int) -> Tensor:
    """Over-confident part of the ECE."""
    return (table.count / samples * table.gap.clamp(min=0)).sum(-1)


def u_ece_of(table: BinTable, samples: int) -> Tensor:
    """Under-confident part of the ECE."""
    return (table.count / samples * (-table.gap).clamp(min=0)).sum(-1)


def ece(probs: Tensor, labels: Tensor, bins: int = 15, convention: Convention = "right") -> Tensor:
    """Expected calibration error.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.
        bins: number of equal-width bins.
        convention: of the bins' edges, see ``bin_table``.

    Returns:
        (...), in [0, 1].
    """
    return ece_of(bin_table(probs, labels, bins, convention), len(labels))


def mce(probs: Tensor, labels: Tensor, bins: int = 15, convention: Convention = "right") -> Tensor:
    """Maximum calibration error; arguments as ``ece``."""
    return mce_of(bin_table(probs, labels, bins, convention))


def ace(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Return the average calibration error, unweighted over bins; arguments as ``ece``."""
    return ace_of(bin_table(probs, labels, bins))


def rmsce(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Return the root mean square calibration error; arguments as ``ece``."""
    return rmsce_of(bin_table(probs, labels, bins), len(labels))


def o_ece(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Over-confident part of the ECE; arguments as ``ece``."""
    return o_ece_of(bin_table(probs, labels, bins), len(labels))


def u_ece(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Under-confident part of the ECE; arguments as ``ece``."""
    return u_ece_of(bin_table(probs, labels, bins), len(labels))


def oe_thulasidasan(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Over-confidence error of Thulasidasan et al. (NeurIPS 2019): the gap times the confidence."""
    table = bin_table(probs, labels, bins)
    return (table.count / len(labels) * table.confidence * table.gap.clamp(min=0)).sum(-1)


def aece(probs: Tensor, labels: Tensor, bins: int = 15, equal_mass: bool = False) -> Tensor:
    """Return the adaptive ECE.

    Args:
        probs: (..., N, C).
        labels: (N,).
        bins: number of bins.
        equal_mass: PLP's bins of N // B samples instead of Mukhoti's interpolated edges.

    Returns:
        (...), in [0, 1].
    """
    table = (equal_mass_table if equal_mass else adaptive_table)(probs, labels, bins)
    return ece_of(table, len(labels))


def cece(probs: Tensor, labels: Tensor, bins: int = 15, all_classes: bool = False) -> Tensor:
    """Classwise ECE: bins of p[:, k] against 1[y = k], averaged over classes.

    Args:
        probs: (..., N, C).
        labels: (N,).
        bins: number of equal-width bins (lo, hi]; p = 0 is in none.
        all_classes: average over all C (SCE of MDCA) instead of 0..max(labels) (Mukhoti).

    Returns:
        (...), in [0, 1].
    """
    check(probs, labels)
    # A class beyond the largest label is left out by Mukhoti's code, on which the tables rest.
    classes = probs.shape[-1] if all_classes else int(labels.max()) + 1
    errors = []
    for scores, is_class, place in _by_class(probs[..., :classes], labels, bins):
        # 0 takes what is in no bin; n_b/N |conf_b - acc_b| = |sum of (p - 1[y = k])| / N
        gaps = _summed(place, scores - is_class, bins)
        errors.append(gaps.abs().sum(-1))
    return torch.cat(errors, -1).mean(-1) / len(labels)


def classwise_debiased(probs: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Root of the mean over classes of the debiased squared error of p[:, k] against 1[y = k].

    The marginal error of Kumar et al. (NeurIPS 2019), over the bins of the classwise ECE: of bins
    of equal mass, all but one would hold nothing but samples of other classes where there are many
    classes. p = 0 is in the lowest bin.

    Args:
        probs: (..., N, C).
        labels: (N,).
        bins: number of equal-width bins.

    Returns:
        (...), in [0, 1].
    """
    check(probs, labels)
    squares = []
    for scores, is_class, place in _by_class(probs, labels, bins):
        of_sample = (torch.ones_like(scores), is_class.expand_as(scores), scores - is_class)
        sums = (_summed(place.clamp(min=1), values, bins) for values in of_sample)
        squares.append(debiased(*sums))
    return torch.cat(squares, -1).mean(-1).sqrt()


def _by_class(probs: Tensor, labels: Tensor, bins: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield a few classes at a time, each against the rest.

    Yields:
        p (..., c, N); 1[y = k], (c, N); the bin of each p, (..., c, N): 1 to B, 0 where p = 0.
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    numbers = torch.arange(probs.shape[-1], device=labels.device)
    # All of a thousand classes at once would take several times the memory of the probabilities.
    width = max(1, _CHUNK // len(labels))
    for part, classes in zip(probs.split(width, -1), numbers.split(width), strict=True):
        scores = part.transpose(-1, -2).contiguous()
        is_class = (labels == classes[:, None]).to(probs.dtype)
        yield scores, is_class, torch.bucketize(scores, edges)


def _summed(place: Tensor, values: Tensor, bins: int) -> Tensor:
    """Sums of the bins: (..., N) to (..., B)."""
    zeros = torch.zeros(*values.shape[:-1], bins + 2, dtype=values.dtype, device=values.device)
    return zeros.scatter_add(-1, place, values)[..., 1 : bins + 1]
