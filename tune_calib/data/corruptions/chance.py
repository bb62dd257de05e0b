"""Random numbers of single images: the same in every batch, in every order and on every device."""

import math

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in signed integers, which overflow alike.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # of a float32


class Chance:
    """A stream of random numbers for each of some images.

    Args:
        seed: of all of them.
        indices: (N,), int64, tell their streams apart.
    """

    def __init__(self, seed: int, indices: Tensor) -> None:
        self.streams = _mixed(_mixed(indices) + seed)
        self.drawn = 0

    def uniform(self, *shape: int) -> Tensor:
        """Numbers within (0, 1), (N, *shape) float32."""
        count = math.prod(shape)
        device = self.streams.device
        places = torch.arange(self.drawn, self.drawn + count, device=device) * _GAMMA
        self.drawn += count
        bits = _shifted(_mixed(self.streams[:, None] + places), 64 - _BITS)
        # In the middle of their cells: neither 0 nor 1.
        numbers = bits.float().add_(0.5).div_(2**_BITS).clamp_(max=1 - 2**-_BITS)
        return numbers.view(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, (N, *shape) float32, none beyond 5.2 deviations."""
        numbers: Tensor = torch.special.ndtri(self.uniform(*shape))
        return numbers

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        """Uniform numbers between two bounds, (N, *shape) float32."""
        return self.uniform(*shape).mul_(high - low).add_(low)


def _mixed(state: Tensor) -> Tensor:
    state = state + _GAMMA
    state = (state ^ _shifted(state, 30)) * _FIRST
    state = (state ^ _shifted(state, 27)) * _SECOND
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, places: int) -> Tensor:
    """Shift to the right, with zeros behind."""
    shifted: Tensor = (state >> places) & (2 ** (64 - places) - 1)
    return shifted
