"""Generated corruptions: the kinds of Hendrycks and Dietterich (ICLR 2019), at five severities.

Kinds and strengths are those of the CIFAR version of the benchmark; docs/pages/data.md#corruptions
lists the differences. The random numbers of an image depend only on the kind, the severity and the
position of the image in its data set, not on its batch or the device.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.corruptions.maps import Chance, Kind, blurred, moved, scale, zoomed
from tune_calib.determinism import child_seed
from tune_calib.spec.names import CORRUPTION_KINDS

SEVERITIES = (1, 2, 3, 4, 5)
VERSION = 2  # must be raised when a call returns different images; part of the key of artifacts
_EDGE = 1e-3  # in grey levels: a 7 that is 6.9999 in floating point stays 7


def _shot(pixels: Tensor, photons: int, chance: Chance) -> Tensor:
    levels = (255 * pixels).round()
    table, width = _poisson(photons)
    drawn = levels.double() + chance.uniform(*pixels.shape[1:])
    places = torch.searchsorted(table.to(pixels.device), drawn)
    return (places - levels.long() * width).float() / photons


@lru_cache
def _poisson(photons: int) -> tuple[Tensor, int]:
    """Return the distribution functions of the 256 grey levels, each shifted by 1, joined."""
    width = math.ceil(photons + 10 * math.sqrt(photons)) + 10
    rates = torch.arange(256, dtype=torch.float64)[:, None] * photons / 255
    counts = torch.arange(1, width + 1, dtype=torch.float64).expand(256, -1)
    functions = torch.special.gammaincc(counts, rates.expand(-1, width).contiguous())
    return (torch.arange(256)[:, None] + functions).flatten(), width


def _impulse(pixels: Tensor, share: float, chance: Chance) -> Tensor:
    drawn = chance.uniform(*pixels.shape[1:])
    return torch.where(drawn < share, (drawn < share / 2).float(), pixels)


def _defocus(pixels: Tensor, strength: tuple[float, float], _: Chance) -> Tensor:
    radius, edge = strength
    kernel = _disk(radius * scale(pixels), edge).to(pixels.device)
    reach, channels = kernel.shape[-1] // 2, pixels.shape[1]
    # Reflection padding must be smaller than the image.
    mode = "replicate" if reach >= pixels.shape[-1] else "reflect"
    padded = F.pad(pixels, [reach] * 4, mode=mode)
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
    # The benchmark's program is meant to swap pixels. Its assignment, however, copies them from
    # positions that it has not reached yet, so that all pixels can be copied at once.
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
        swapped = pixels.reshape(samples, channels, -1).gather(2, seen)
        pixels = pixels.clone()
        first, last = int(inner[0]), int(inner[-1]) + 1
        pixels[..., first:last, first:last] = swapped.view(samples, channels, *2 * (len(inner),))
    return blurred(pixels, deviation)


def _zoom(pixels: Tensor, largest: float, _: Chance) -> Tensor:
    factors = np.arange(1, largest, 0.01).tolist()
    return (pixels + sum(zoomed(pixels, factor) for factor in factors)) / (len(factors) + 1)


def grey(pixels: Tensor) -> Tensor:
    """Return the luma, (N, 1, H, H)."""
    if pixels.shape[1] == 1:
        return pixels
    weights = torch.tensor((0.299, 0.587, 0.114), device=pixels.device)  # of ITU-R BT.601
    return (weights.view(1, 3, 1, 1) * pixels).sum(1, keepdim=True)


def _snow(pixels: Tensor, strength: tuple[float, ...], chance: Chance) -> Tensor:
    mean, deviation, zoom, least, radius, reach, share = strength
    side = pixels.shape[-1]
    flakes = zoomed(mean + deviation * chance.normal(1, side, side), zoom)
    flakes = torch.where(flakes < least, 0, flakes).clamp(0, 1)
    angles = chance.between(-135, -45)
    flakes = moved(flakes, radius * scale(pixels), reach * scale(pixels), angles)
    pale = torch.maximum(pixels, 1.5 * grey(pixels) + 0.5)
    return share * pixels + (1 - share) * pale + flakes + flakes.flip(2, 3)


def _fog(pixels: Tensor, strength: tuple[float, float], chance: Chance) -> Tensor:
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


def _brightness(pixels: Tensor, added: float, _: Chance) -> Tensor:
    value = pixels.amax(1, keepdim=True)
    raised = (value + added).clamp(max=1)
    # Black has no hue, so it becomes grey.
    return torch.where(value > 0, pixels / value.clamp(min=1e-6) * raised, raised)


def _contrast(pixels: Tensor, factor: float, _: Chance) -> Tensor:
    mean = pixels.mean((2, 3), keepdim=True)
    return mean + factor * (pixels - mean)


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
    # Reflection at the outer edge of the last pixel, as in SciPy.
    grid = (2 * seen + 1) / side - 1
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)


def _affine(pixels: Tensor, most: float, chance: Chance) -> Tensor:
    samples, side = len(pixels), pixels.shape[-1]
    centre, reach = side // 2, side // 3
    places = [(reach, reach), (reach, -reach), (-reach, -reach)]
    original = centre + torch.tensor(places, dtype=torch.float32, device=pixels.device)
    moved_corners = original + chance.between(-most, most, 3, 2)
    # The source of each pixel: the map from the moved corners to the original ones.
    corners = torch.cat([moved_corners, moved_corners.new_ones(samples, 3, 1)], 2).double()
    back = torch.linalg.solve(corners, original.double().expand(samples, -1, -1)).float()
    place = torch.arange(side, dtype=torch.float32, device=pixels.device)
    down, across = torch.meshgrid(place, place, indexing="ij")
    pixel_places = torch.stack([across, down, torch.ones_like(down)], -1).view(1, -1, 3)
    seen = (pixel_places @ back).view(samples, side, side, 2)
    # Reflection at the centre of the last pixel, as in OpenCV.
    grid = 2 * seen / max(1, side - 1) - 1
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=True)


def _pixelate(pixels: Tensor, share: float, _: Chance) -> Tensor:
    side, box = pixels.shape[-1], Image.Resampling.BOX
    small = max(1, int(side * share))
    return _apply_pillow(
        pixels, lambda image: image.resize((small, small), box).resize((side, side), box)
    )


def _jpeg(pixels: Tensor, quality: int, _: Chance) -> Tensor:
    def compress(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _apply_pillow(pixels, compress)


def _apply_pillow(pixels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply an operation of Pillow, whose rounding is part of the benchmark, to each image."""
    content = (255 * pixels).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    changed = np.empty_like(content)
    for place, image in enumerate(content):
        # Pillow takes images of one channel without an axis for it.
        values = image[:, :, 0] if image.shape[2] == 1 else image
        changed[place] = np.asarray(change(Image.fromarray(values))).reshape(image.shape)
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(pixels.device).float() / 255


def _saturate(pixels: Tensor, strength: tuple[float, float], _: Chance) -> Tensor:
    """Change the saturation of HSV, but neither hue nor value; grey counts as red."""
    factor, added = strength
    value = pixels.amax(1, keepdim=True)
    gap = value - pixels
    widest = gap.amax(1, keepdim=True)
    red = torch.tensor([0.0, 1.0, 1.0], device=pixels.device).view(1, 3, 1, 1)
    direction = torch.where(widest > 0, gap / widest.clamp(min=1e-6), red)
    saturation = (factor * widest / value.clamp(min=1e-6) + added).clamp(0, 1)
    return value * (1 - saturation * direction)


_KINDS = (
    Kind("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10),
         lambda x, deviation, chance: x + deviation * chance.normal(*x.shape[1:])),
    Kind("shot_noise", (500, 250, 100, 75, 50), _shot),
    Kind("impulse_noise", (0.01, 0.02, 0.03, 0.05, 0.07), _impulse),
    Kind("speckle_noise", (0.06, 0.1, 0.12, 0.16, 0.2),
         lambda x, deviation, chance: x * (1 + deviation * chance.normal(*x.shape[1:]))),
    # Radius of the disk, and deviation of the filter that softens its edge.
    Kind("defocus_blur", ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)), _defocus),
    # Deviation of the blur, largest distance between swapped pixels, number of rounds.
    Kind("glass_blur", ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
         _glass),
    # Radius and deviation.
    Kind("motion_blur", ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
         lambda x, s, chance: moved(x, s[0] * scale(x), s[1] * scale(x), chance.between(-45, 45))),
    Kind("zoom_blur", (1.06, 1.11, 1.16, 1.21, 1.26), _zoom),
    Kind("gaussian_blur", (0.4, 0.6, 0.7, 0.8, 1),
         lambda x, deviation, _: blurred(x, deviation * scale(x))),
    # Mean and deviation of the noise, its zoom and threshold, radius and deviation of the motion
    # blur, share of the original image.
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
    # Thickness, and decay of the amplitude from coarse to fine.
    Kind("fog", ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), _fog),
    Kind("brightness", (0.05, 0.1, 0.15, 0.2, 0.3), _brightness),
    Kind("contrast", (0.75, 0.5, 0.4, 0.3, 0.15), _contrast),
    # As shares of the image size: displacement, its smoothness, displacement of the corners.
    Kind("elastic_transform", ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06),
                               (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)), _elastic),
    Kind("pixelate", (0.95, 0.9, 0.85, 0.75, 0.65), _pixelate),
    Kind("jpeg_compression", (80, 65, 58, 50, 40), _jpeg),
    Kind("saturate", ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), _saturate,
         needs_colour=True),
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}

# Without the extra kinds of the benchmark, which are in no mean over kinds.
MAIN = tuple(name for name in KINDS if name in CORRUPTION_KINDS)


def corrupted(images: Tensor, indices: Tensor, kind: str, severity: int) -> Tensor:
    """Corrupt images (N, C, H, H) uint8 with noise that ``indices`` (N,) int64 seed."""
    record = KINDS[kind]
    chance = Chance(child_seed(0, f"corruption/{kind}", severity), indices.to(images.device))
    pixels = images.float() / 255
    changed = record.change(pixels, record.strengths[severity - 1], chance)
    # Truncated, not rounded, as in the benchmark's program.
    return (255 * changed.clamp(0, 1) + _EDGE).to(torch.uint8)
