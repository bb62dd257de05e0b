"""Weather: snow, fog and brightness; frost needs artwork."""

import math

import torch
from torch import Tensor

from tune_calib.data.corruptions.maps import Chance, Kind, moved, scale, zoomed

_GREY = (0.299, 0.587, 0.114)  # of ITU-R BT.601


def grey(pixels: Tensor) -> Tensor:
    """Return the luma, (N, 1, H, H)."""
    if pixels.shape[1] == 1:
        return pixels
    weights = torch.tensor(_GREY, device=pixels.device).view(1, 3, 1, 1)
    return (weights * pixels).sum(1, keepdim=True)


def _snow(pixels: Tensor, strength: tuple[float, ...], chance: Chance) -> Tensor:
    """Add flakes, blurred along their fall, to a paler image."""
    mean, deviation, zoom, least, radius, reach, kept = strength
    side = pixels.shape[-1]
    flakes = zoomed(mean + deviation * chance.normal(1, side, side), zoom)
    flakes = torch.where(flakes < least, 0, flakes).clamp(0, 1)
    angles = chance.between(-135, -45)
    flakes = moved(flakes, radius * scale(pixels), reach * scale(pixels), angles)
    pale = torch.maximum(pixels, 1.5 * grey(pixels) + 0.5)
    return kept * pixels + (1 - kept) * pale + flakes + flakes.flip(2, 3)


def _fog(pixels: Tensor, strength: tuple[float, float], chance: Chance) -> Tensor:
    """Add a cloud to the image without making it brighter."""
    thickness, decay = strength
    side = pixels.shape[-1]
    cloud = _plasma(2 ** max(1, math.ceil(math.log2(side))), decay, chance)[:, :side, :side]
    largest = pixels.amax((1, 2, 3), keepdim=True)
    return (pixels + thickness * cloud[:, None]) * largest / (largest + thickness)


def _plasma(side: int, decay: float, chance: Chance) -> Tensor:
    """Draw a fractal height map in [0, 1] by the diamond-square algorithm, (N, side, side)."""
    heights = chance.streams.new_zeros((len(chance.streams), side, side), dtype=torch.float32)
    step, amplitude = side, 100.0
    while step >= 2:
        half = step // 2

        def wobbled(total: Tensor, by: float = amplitude) -> Tensor:
            return total / 4 + by * chance.between(-by, by, *total.shape[1:])

        corners = heights[:, ::step, ::step]
        beside = corners + corners.roll(-1, 1)
        middles = wobbled(beside + beside.roll(-1, 2))
        heights[:, half::step, half::step] = middles
        rows = middles + middles.roll(1, 1) + corners + corners.roll(-1, 2)
        columns = middles + middles.roll(1, 2) + corners + corners.roll(-1, 1)
        heights[:, ::step, half::step] = wobbled(rows)
        heights[:, half::step, ::step] = wobbled(columns)
        step, amplitude = half, amplitude / decay
    heights = heights - heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def _brightness(pixels: Tensor, added: float, chance: Chance) -> Tensor:
    """Raise the value of HSV, but change neither hue nor saturation."""
    del chance
    value = pixels.amax(1, keepdim=True)
    raised = (value + added).clamp(max=1)
    # Black has no hue: it becomes grey.
    return torch.where(value > 0, pixels / value.clamp(min=1e-6) * raised, raised)


KINDS = (
    # Mean and deviation of the noise, its zoom and threshold, radius and deviation of the fall,
    # share of the image.
    Kind(
        "snow",
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        _snow,
    ),
    # Thickness, and by how much finer grains are weaker.
    Kind("fog", ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), _fog),
    Kind("brightness", (0.05, 0.1, 0.15, 0.2, 0.3), _brightness),
)
