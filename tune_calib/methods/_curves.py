"""Piecewise linear curves: isotonic fits, and their evaluation in pure torch."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.methods._posthoc import exact

_TINY = torch.finfo(torch.float64).tiny


def isotonic(values: NDArray[np.float64], targets: NDArray[np.float64]) -> Tensor:
    """Fit an increasing curve (N,) to (N,) in [0, 1] by least squares; return its knots (2, M)."""
    from sklearn.isotonic import IsotonicRegression  # takes half a second, and is rarely needed

    fit = IsotonicRegression(y_min=0.0, y_max=1.0).fit(values, targets)
    knots = np.stack([fit.X_thresholds_, fit.y_thresholds_])
    # A single knot means a constant curve, which needs two ends.
    return torch.from_numpy(knots if knots.shape[1] > 1 else np.repeat(knots, 2, axis=1))


def count_below(places: Tensor, values: Tensor) -> Tensor:
    """Count the sorted places (C, M) that do not exceed each of the values (C, N): (C, N).

    It uses bisection, because ``torch.searchsorted`` cannot be exported to ONNX.
    """
    size = places.shape[1]
    found = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << size.bit_length()
    while step := step // 2:
        further = found + step
        reached = places.gather(1, further.clamp(max=size) - 1) <= values
        found = torch.where((further <= size) & reached, further, found)
    return found


def interpolated(values: Tensor, knots: Tensor) -> Tensor:
    """Evaluate curves (C, 2, M) at values (C, N), linear between knots and constant outside."""
    places, heights = knots[:, 0], knots[:, 1]
    above = count_below(places, values).clamp(1, places.shape[1] - 1)
    left, right = places.gather(1, above - 1), places.gather(1, above)
    low, high = heights.gather(1, above - 1), heights.gather(1, above)
    share = ((values - left) / (right - left).clamp_min(exact(_TINY, values))).clamp(0, 1)
    return low + share * (high - low)
