"""Noise: Gaussian, shot, impulse and speckle."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from tune_calib.data.corruptions.maps import Chance, Kind


def _gaussian(pixels: Tensor, deviation: float, chance: Chance) -> Tensor:
    return pixels + deviation * chance.normal(*pixels.shape[1:])


def _speckle(pixels: Tensor, deviation: float, chance: Chance) -> Tensor:
    return pixels * (1 + deviation * chance.normal(*pixels.shape[1:]))


def _shot(pixels: Tensor, photons: int, chance: Chance) -> Tensor:
    """Draw counts of photons, Poisson with ``photons`` for a white pixel, by inversion."""
    levels = (255 * pixels).round()
    table, width = _poisson(photons)
    drawn = levels.double() + chance.uniform(*pixels.shape[1:])
    places = torch.searchsorted(table.to(pixels.device), drawn)
    return (places - levels.long() * width).float() / photons


@lru_cache
def _poisson(photons: int) -> tuple[Tensor, int]:
    """Return the distribution functions of the 256 grey levels, joined and rising by 1 each."""
    width = math.ceil(photons + 10 * math.sqrt(photons)) + 10
    rates = torch.arange(256, dtype=torch.float64)[:, None] * photons / 255
    counts = torch.arange(1, width + 1, dtype=torch.float64).expand(256, -1)
    functions = torch.special.gammaincc(counts, rates.expand(-1, width).contiguous())
    return (torch.arange(256)[:, None] + functions).flatten(), width


def _impulse(pixels: Tensor, share: float, chance: Chance) -> Tensor:
    """Add salt and pepper to each channel separately."""
    drawn = chance.uniform(*pixels.shape[1:])
    return torch.where(drawn < share, (drawn < share / 2).float(), pixels)


KINDS = (
    Kind("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10), _gaussian),
    Kind("shot_noise", (500, 250, 100, 75, 50), _shot),
    Kind("impulse_noise", (0.01, 0.02, 0.03, 0.05, 0.07), _impulse),
    Kind("speckle_noise", (0.06, 0.1, 0.12, 0.16, 0.2), _speckle),
)
