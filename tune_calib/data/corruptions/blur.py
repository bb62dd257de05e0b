"""Blur: defocus, glass, motion, zoom and Gaussian."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.corruptions.maps import Chance, Kind, blurred, moved, scale, zoomed


def _gaussian(pixels: Tensor, deviation: float, chance: Chance) -> Tensor:
    del chance
    return blurred(pixels, deviation * scale(pixels))


def _defocus(pixels: Tensor, strength: tuple[float, float], chance: Chance) -> Tensor:
    """Convolve with a disk whose edge is softened."""
    del chance
    radius, edge = strength
    kernel = _disk(radius * scale(pixels), edge).to(pixels.device)
    reach, channels = kernel.shape[-1] // 2, pixels.shape[1]
    # A mirror cannot be larger than what it shows.
    is_small = reach >= pixels.shape[-1]
    padded = F.pad(pixels, [reach] * 4, mode="replicate" if is_small else "reflect")
    return F.conv2d(padded, kernel.expand(channels, 1, -1, -1), groups=channels)


def _disk(radius: float, edge: float) -> Tensor:
    soft = 1 if radius <= 8 else 2
    reach = math.floor(radius) + soft
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (places.square()[:, None] + places.square() <= radius**2).double()
    taps = torch.arange(-soft, soft + 1, dtype=torch.float64)
    weights = (-0.5 * (taps / edge).square()).exp()
    softened = (weights[:, None] * weights)[None, None] / weights.sum() ** 2
    kernel = F.conv2d(disk[None, None] / disk.sum(), softened, padding=soft)
    return kernel.float()


def _glass(pixels: Tensor, strength: tuple[float, int, int], chance: Chance) -> Tensor:
    """Take each pixel from a place near it, in an image that is blurred before and after.

    The benchmark's program means to swap pixels; its assignment copies them, from places that it
    has not reached yet, so that all may be taken at once.
    """
    deviation, near, rounds = strength[0] * scale(pixels), strength[1], strength[2]
    near = round(near * scale(pixels))
    pixels = (255 * blurred(pixels, deviation) + 1e-3).floor() / 255
    samples, channels, side = pixels.shape[:3]
    inner = torch.arange(near + 1, side - near + 1, device=pixels.device)
    if len(inner) == 0:
        return blurred(pixels, deviation)
    for _ in range(rounds):
        drawn = chance.uniform(2, len(inner), len(inner))
        offsets = (drawn * 2 * near).floor().long() - near
        down = (inner[:, None] + offsets[:, 0]).clamp(max=side - 1)
        across = (inner + offsets[:, 1]).clamp(max=side - 1)
        seen = (down * side + across).reshape(samples, 1, -1).expand(-1, channels, -1)
        found = pixels.reshape(samples, channels, -1).gather(2, seen)
        pixels = pixels.clone()
        first, last = int(inner[0]), int(inner[-1]) + 1
        pixels[..., first:last, first:last] = found.view(samples, channels, *2 * (len(inner),))
    return blurred(pixels, deviation)


def _motion(pixels: Tensor, strength: tuple[float, float], chance: Chance) -> Tensor:
    radius, deviation = (length * scale(pixels) for length in strength)
    return moved(pixels, radius, deviation, chance.between(-45, 45))


def _zoom(pixels: Tensor, largest: float, chance: Chance) -> Tensor:
    """Average the image and enlarged ones."""
    del chance
    factors = np.arange(1, largest, 0.01).tolist()
    return (pixels + sum(zoomed(pixels, factor) for factor in factors)) / (len(factors) + 1)


KINDS = (
    # Radius of the disk, deviation that softens its edge.
    Kind("defocus_blur", ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)), _defocus),
    # Deviation of the blur, how near pixels are taken from, how often.
    Kind(
        "glass_blur", ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)), _glass
    ),
    # Radius and deviation.
    Kind("motion_blur", ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)), _motion),
    Kind("zoom_blur", (1.06, 1.11, 1.16, 1.21, 1.26), _zoom),
    Kind("gaussian_blur", (0.4, 0.6, 0.7, 0.8, 1), _gaussian),
)
