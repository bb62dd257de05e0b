"""Smooth ECE (Blasiok and Nakkiran, ICLR 2024): no bins, and a bandwidth set by a fixed point."""

import torch
from torch import Tensor

from tune_calib.metrics.binning import GRID
from tune_calib.metrics.samples import Samples

SMALLEST = 1e-3  # bandwidth, as in the authors' package
_STEPS = 8


def smooth_ece(samples: Samples) -> Tensor:
    """Return the integral of the absolute smoothed difference of confidence and correctness.

    The differences are smoothed by a Gaussian that is reflected at 0 and 1. Its bandwidth is the
    one that equals the error (section 3 of the paper), but at least ``SMALLEST``. The result is
    (...), in [0, 1].
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
    """Return the integral (...) of the absolute differences, smoothed with bandwidths (...).

    ``waves`` (..., GRID + 1) is the cosine transform of the differences.
    """
    numbers = torch.arange(GRID + 1, dtype=waves.dtype, device=waves.device)
    damping = torch.exp(-0.5 * (torch.pi * numbers * width[..., None]).square())
    values: Tensor = torch.fft.irfft((waves * damping).to(torch.complex128), n=2 * GRID)
    values = values[..., : GRID + 1].abs()
    # Trapezoidal rule: each end point stands for half an interval, and so does its mirror image.
    integral: Tensor = values.sum(-1) - (values[..., 0] + values[..., -1]) / 2
    return integral
