"""Kolmogorov-Smirnov calibration error, which needs no bins (Gupta et al., ICLR 2021)."""

from torch import Tensor

from tune_calib.metrics.ranked import Ranked, top_ranked


def ks_error(probs: Tensor, labels: Tensor) -> Tensor:
    """Return the largest distance between the cumulative sums of confidence and correctness.

    Samples are added in order of increasing confidence. Samples of equal confidence are added
    together.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.

    Returns:
        (...), in [0, 1].

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    return ks_of(top_ranked(probs, labels))


def ks_of(ranked: Ranked) -> Tensor:
    """Compute ``ks_error`` of ranked samples."""
    return (ranked.over[..., 1:].abs() * ranked.ranking.is_end).amax(-1) / ranked.samples
