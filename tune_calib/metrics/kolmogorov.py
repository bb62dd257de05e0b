"""Kolmogorov-Smirnov calibration error, which needs no bins (Gupta et al., ICLR 2021)."""

from torch import Tensor

from tune_calib.metrics.ranked import Ranked


def ks_error(ranked: Ranked) -> Tensor:
    """Return the largest distance between the cumulative sums of confidence and correctness.

    Samples are added in order of increasing confidence. Samples of equal confidence are added
    together. The result is (...), in [0, 1].
    """
    return (ranked.over[..., 1:].abs() * ranked.ranking.is_end).amax(-1) / ranked.samples
