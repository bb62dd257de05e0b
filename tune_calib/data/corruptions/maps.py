"""Linear maps of images that several corruptions share."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def blurred(
    pixels: Tensor,
    deviation: float,
    border: Literal["nearest", "reflect"] = "nearest",
    truncate: float = 4.0,
) -> Tensor:
    """Fold rows and columns of (..., H, H) with a normal density, as ``scipy.ndimage``.

    ``deviation`` is in pixels, ``truncate`` in deviations; beyond the border its last pixel is
    seen, or the image mirrored.
    """
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
    # As a matrix: what is beyond a border is folded back once, and not at every image.
    matrix = torch.zeros(side, side, dtype=torch.float64)
    matrix.scatter_add_(1, seen, (weights / weights.sum()).expand(side, -1).contiguous())
    matrix = matrix.float().to(pixels.device)
    return matrix @ pixels @ matrix.T


def zoomed(pixels: Tensor, factor: float) -> Tensor:
    """The middle of images, (N, C, H, H), enlarged to their size."""
    side = pixels.shape[-1]
    window = math.ceil(side / factor)
    top = (side - window) // 2
    middle = pixels[..., top : top + window, top : top + window]
    size = round(window * factor)
    large = F.interpolate(middle, size=(size, size), mode="bilinear", align_corners=True)
    rest = (size - side) // 2
    return large[..., rest : rest + side, rest : rest + side]


def moved(pixels: Tensor, radius: float, deviation: float, angles: Tensor) -> Tensor:
    """Blur (N, C, H, H) along lines, to one side, as ImageMagick's motion blur.

    Args:
        pixels: (N, C, H, H); the border is repeated.
        radius: pixels to which the line is cut.
        deviation: of the half of a normal density along the line, in pixels.
        angles: (N,), of the lines, in degrees.
    """
    samples, channels, side = pixels.shape[:3]
    steps = torch.arange(2 * math.ceil(radius) + 1)
    weights = (-0.5 * (steps.double() / deviation).square()).exp()
    weights = weights / weights.sum()
    radians = angles.deg2rad()
    place = torch.arange(side, device=pixels.device)
    flat, result = pixels.reshape(samples, channels, -1), torch.zeros_like(pixels)
    for step, weight in zip(steps.tolist(), weights.tolist(), strict=True):
        if weight < 1e-5:  # changes no byte
            break
        across = (place + torch.ceil(step * radians.cos() - 0.5)[:, None]).clamp(0, side - 1)
        down = (place + torch.ceil(step * radians.sin() - 0.5)[:, None]).clamp(0, side - 1)
        seen = (down[:, :, None] * side + across[:, None, :]).long().reshape(samples, 1, -1)
        found = flat.gather(2, seen.expand(-1, channels, -1))
        result.add_(found.view_as(result), alpha=weight)
    return result
