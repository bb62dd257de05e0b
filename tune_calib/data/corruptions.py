"""Image corruptions of five severities, on tensors: for the test split, never for training.

The kinds are among those of CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019), but strengths and
noise are our own: numbers on them stand beside each other, not beside a paper's on CIFAR-10-C.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.base import Split
from tune_calib.data.images import LazyImages
from tune_calib.seeds import child_seed

# Standard deviation of the noise (pixels in [0, 1]), that of the blur (in pixels), contrast kept.
STRENGTHS = {
    "noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
}
SEVERITIES = (1, 2, 3, 4, 5)


def corrupt(split: Split, kind: str, severity: int) -> Split:
    """Corrupt every image of a split; equal calls give equal images.

    Args:
        split: it is not changed.
        kind: a key of ``STRENGTHS``.
        severity: of ``SEVERITIES``, 5 the worst.
    """
    if isinstance(split.images, LazyImages):
        change = partial(_corrupted, kind=kind, severity=severity)
        return replace(split, images=split.images.changed(change))
    return replace(split, images=_corrupted(split.images, None, kind, severity))


def _corrupted(images: Tensor, rows: Tensor | None, kind: str, severity: int) -> Tensor:
    """Images, (N, C, H, W) uint8, of a resident split, or of some rows of a large set."""
    strength = STRENGTHS[kind][severity - 1]
    pixels = images.float() / 255
    match kind:
        case "noise":
            pixels = pixels + strength * _noise(pixels, rows, severity)
        case "blur":
            pixels = _blurred(pixels, strength)
        case _:
            mean = pixels.mean((2, 3), keepdim=True)
            pixels = mean + strength * (pixels - mean)
    # Back to bytes, as a picture on a disk would be.
    return (255 * pixels.clamp(0, 1)).round().to(torch.uint8)


def _noise(pixels: Tensor, rows: Tensor | None, severity: int) -> Tensor:
    # Of the CPU, so that the draws do not depend on the device.
    # A seed of the data and not of a trial: all trials are judged on the same pictures.
    seed = child_seed(0, "corruption", severity)
    if rows is None:
        chance = torch.Generator().manual_seed(seed)
        return torch.randn(pixels.shape, generator=chance).to(pixels.device)
    # For each image by itself: they come some at a time, in any order.
    chances = [torch.Generator().manual_seed(child_seed(seed, "image", int(row))) for row in rows]
    noise = [torch.randn(pixels.shape[1:], generator=chance) for chance in chances]
    return torch.stack(noise).to(pixels.device)


def _blurred(pixels: Tensor, deviation: float) -> Tensor:
    """Rows and columns folded with a normal density; the border is repeated outwards."""
    reach = math.ceil(3 * deviation)
    places = torch.arange(-reach, reach + 1, dtype=pixels.dtype, device=pixels.device)
    weights = (-0.5 * (places / deviation).square()).exp()
    weights = weights / weights.sum()
    channels = pixels.shape[1]
    # Zeros would darken the border.
    padded = F.pad(pixels, [reach] * 4, mode="replicate")
    for shape in ((1, 1, -1, 1), (1, 1, 1, -1)):
        kernel = weights.reshape(shape).repeat(channels, 1, 1, 1)
        padded = F.conv2d(padded, kernel, groups=channels)
    return padded
