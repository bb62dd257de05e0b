"""Records, random numbers and linear maps shared by several corruptions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

# SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in signed integers, which overflow the same way.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # precision of float32


class Chance:
    """A stream of random numbers for each image, by its index (N,), whatever the batch."""

    def __init__(self, seed: int, indices: Tensor) -> None:
        self.streams = _mixed(_mixed(indices) + seed)
        self.drawn = 0

    def uniform(self, *shape: int) -> Tensor:
        """Draw uniform numbers in (0, 1), (N, *shape) float32."""
        count = math.prod(shape)
        device = self.streams.device
        places = torch.arange(self.drawn, self.drawn + count, device=device) * _GAMMA
        self.drawn += count
        bits = _shifted(_mixed(self.streams[:, None] + places), 64 - _BITS)
        # At the centre of cells, so that 0 and 1 never occur.
        numbers = bits.float().add_(0.5).div_(2**_BITS).clamp_(max=1 - 2**-_BITS)
        return numbers.view(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        numbers: Tensor = torch.special.ndtri(self.uniform(*shape))
        return numbers

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        return self.uniform(*shape).mul_(high - low).add_(low)


def _mixed(state: Tensor) -> Tensor:
    state = state + _GAMMA
    state = (state ^ _shifted(state, 30)) * _FIRST
    state = (state ^ _shifted(state, 27)) * _SECOND
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, places: int) -> Tensor:
    """Shift to the right and fill with zeros."""
    shifted: Tensor = (state >> places) & (2 ** (64 - places) - 1)
    return shifted


@dataclass(frozen=True)
class Kind:
    name: str  # name of the file in the benchmark
    # One strength per severity, from the benchmark's program for CIFAR.
    strengths: tuple[Any, Any, Any, Any, Any]
    # Takes pixels (N, C, H, H) in [0, 1], a strength and random streams; returns pixels.
    change: Callable[[Tensor, Any, Chance], Tensor]
    needs_colour: bool = False  # whether it has no effect on grey images


def scale(pixels: Tensor) -> float:
    """Return the factor of lengths, which is 1 for images of up to 32 pixels, the size of CIFAR."""
    return max(1.0, pixels.shape[-1] / 32)


def blurred(
    pixels: Tensor,
    deviation: float,
    border: Literal["nearest", "reflect"] = "nearest",
    truncate: float = 4.0,
) -> Tensor:
    """Convolve rows and columns of (..., H, H) with a Gaussian, as ``scipy.ndimage`` does."""
    reach = int(truncate * deviation + 0.5)
    if reach == 0:
        return pixels
    side = pixels.shape[-1]
    taps = torch.arange(-reach, reach + 1)
    weights = (-0.5 * (taps.double() / deviation).square()).exp()
    seen = torch.arange(side)[:, None] + taps
    if border == "nearest":
        seen = seen.clamp(0, side - 1)
    else:
        seen = seen % (2 * side)
        seen = torch.minimum(seen, 2 * side - 1 - seen)
    # As a matrix, so that the border is handled once and not for every image.
    matrix = torch.zeros(side, side, dtype=torch.float64)
    matrix.scatter_add_(1, seen, (weights / weights.sum()).expand(side, -1).contiguous())
    matrix = matrix.float().to(pixels.device)
    return matrix @ pixels @ matrix.T


def zoomed(pixels: Tensor, factor: float) -> Tensor:
    side = pixels.shape[-1]
    window = math.ceil(side / factor)
    top = (side - window) // 2
    middle = pixels[..., top : top + window, top : top + window]
    size = round(window * factor)
    large = F.interpolate(middle, size=(size, size), mode="bilinear", align_corners=True)
    rest = (size - side) // 2
    return large[..., rest : rest + side, rest : rest + side]


def moved(pixels: Tensor, radius: float, deviation: float, angles: Tensor) -> Tensor:
    """Blur (N, C, H, H) along lines at angles (N,) in degrees, like ImageMagick's motion blur.

    The weights along a line of 2 ceil(``radius``) + 1 pixels are one half of a Gaussian.
    """
    samples, channels, side = pixels.shape[:3]
    steps = torch.arange(2 * math.ceil(radius) + 1)
    weights = (-0.5 * (steps.double() / deviation).square()).exp()
    weights = weights / weights.sum()
    radians = angles.deg2rad()
    place = torch.arange(side, device=pixels.device)
    flat, result = pixels.reshape(samples, channels, -1), torch.zeros_like(pixels)
    for step, weight in zip(steps.tolist(), weights.tolist(), strict=True):
        if weight < 1e-5:  # too small to change a byte
            break
        across = (place + torch.ceil(step * radians.cos() - 0.5)[:, None]).clamp(0, side - 1)
        down = (place + torch.ceil(step * radians.sin() - 0.5)[:, None]).clamp(0, side - 1)
        seen = (down[:, :, None] * side + across[:, None, :]).long().reshape(samples, 1, -1)
        shifted = flat.gather(2, seen.expand(-1, channels, -1))
        result.add_(shifted.view_as(result), alpha=weight)
    return result
