"""Calibration errors over reliability bins, fractions in [0, 1].

There are 15 bins by default, of equal width unless stated otherwise.

Sources: ECE, MCE: Naeini et al., AAAI 2015 and Guo et al., ICML 2017. AECE, classwise ECE:
Mukhoti et al., NeurIPS 2020. O-ECE, U-ECE: FeDLaS, table 4 (O-ECE + U-ECE = ECE).
"""

import torch
from torch import Tensor

from tune_calib.metrics.equal_mass import debiased
from tune_calib.metrics.samples import Samples


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
    """Return the debiased marginal calibration error of Kumar et al. (NeurIPS 2019).

    It is the square root of the mean over classes of the debiased squared error of p[:, k] against
    1[y = k]. The bins are those of the classwise ECE: with many classes, all equal-mass bins but
    one would contain only samples of other classes. Samples with p = 0 are in the lowest bin.
    """
    squares = [debiased(*sums) for sums in samples.class_sums()]
    return torch.cat(squares, -1).mean(-1).sqrt()
