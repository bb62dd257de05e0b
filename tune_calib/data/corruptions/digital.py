"""Digital: contrast, elastic transform, pixelate, JPEG and saturation."""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.corruptions.maps import Chance, Kind, blurred


def _contrast(pixels: Tensor, kept: float, chance: Chance) -> Tensor:
    del chance
    mean = pixels.mean((2, 3), keepdim=True)
    return mean + kept * (pixels - mean)


def _elastic(pixels: Tensor, strength: tuple[float, float, float], chance: Chance) -> Tensor:
    """Apply a random affine map, then a smooth random field of displacements."""
    side = pixels.shape[-1]
    field, smooth, corners = (share * side for share in strength)
    pixels = _affine(pixels, corners, chance)
    if field == 0:
        return pixels
    drawn = chance.between(-1, 1, 2, side, side)
    offsets = field * blurred(drawn, smooth, "reflect", truncate=3)
    place = torch.arange(side, dtype=torch.float32, device=pixels.device)
    seen = torch.stack([place + offsets[:, 0], place[:, None] + offsets[:, 1]], -1)
    # A mirror at the outer edge of the last pixel, as SciPy's.
    grid = (2 * seen + 1) / side - 1
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)


def _affine(pixels: Tensor, most: float, chance: Chance) -> Tensor:
    """Apply the map that moves three corners of a central square by at most ``most`` pixels."""
    samples, side = len(pixels), pixels.shape[-1]
    centre, reach = side // 2, side // 3
    places = [(reach, reach), (reach, -reach), (-reach, -reach)]
    before = centre + torch.tensor(places, dtype=torch.float32, device=pixels.device)
    after = before + chance.between(-most, most, 3, 2)
    # From where each pixel comes: the map of the moved corners to those before.
    known = torch.cat([after, after.new_ones(samples, 3, 1)], 2).double()
    back = torch.linalg.solve(known, before.double().expand(samples, -1, -1)).float()
    place = torch.arange(side, dtype=torch.float32, device=pixels.device)
    down, across = torch.meshgrid(place, place, indexing="ij")
    here = torch.stack([across, down, torch.ones_like(down)], -1).view(1, -1, 3)
    seen = (here @ back).view(samples, side, side, 2)
    # A mirror at the middle of the last pixel, as OpenCV's.
    grid = 2 * seen / max(1, side - 1) - 1
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=True)


def _pixelate(pixels: Tensor, kept: float, chance: Chance) -> Tensor:
    """Shrink images and enlarge them again, both by Pillow's box filter."""
    del chance
    side = pixels.shape[-1]
    small = max(1, int(side * kept))

    def resize(image: Image.Image) -> Image.Image:
        shrunk = image.resize((small, small), Image.Resampling.BOX)
        return shrunk.resize((side, side), Image.Resampling.BOX)

    return _apply_pillow(pixels, resize)


def _jpeg(pixels: Tensor, quality: int, chance: Chance) -> Tensor:
    """Compress images as JPEG files."""
    del chance

    def compress(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _apply_pillow(pixels, compress)


def _apply_pillow(pixels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply an operation of Pillow to one image after the other, in bytes and on the CPU.

    Its rounding is part of what the benchmark publishes.
    """
    content = (255 * pixels).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    is_grey = content.shape[3] == 1
    changed = np.empty_like(content)
    for place, image in enumerate(content):
        result = change(Image.fromarray(image[:, :, 0] if is_grey else image))
        changed[place] = np.asarray(result).reshape(image.shape)
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(pixels.device).float() / 255


def _saturate(pixels: Tensor, strength: tuple[float, float], chance: Chance) -> Tensor:
    """Change the saturation of HSV, but neither hue nor value; grey has the hue of red."""
    del chance
    factor, added = strength
    value = pixels.amax(1, keepdim=True)
    gap = value - pixels
    widest = gap.amax(1, keepdim=True)
    red = torch.tensor([0.0, 1.0, 1.0], device=pixels.device).view(1, 3, 1, 1)
    direction = torch.where(widest > 0, gap / widest.clamp(min=1e-6), red)
    saturation = (factor * widest / value.clamp(min=1e-6) + added).clamp(0, 1)
    return value * (1 - saturation * direction)


KINDS = (
    Kind("contrast", (0.75, 0.5, 0.4, 0.3, 0.15), _contrast),
    # Shares of the side: displacement, its smoothness, moves of the corners.
    Kind(
        "elastic_transform",
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        _elastic,
    ),
    Kind("pixelate", (0.95, 0.9, 0.85, 0.75, 0.65), _pixelate),
    Kind("jpeg_compression", (80, 65, 58, 50, 40), _jpeg),
    Kind(
        "saturate",
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        _saturate,
        needs_colour=True,
    ),
)
