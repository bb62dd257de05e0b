"""Generated corruptions: the kinds of Hendrycks and Dietterich (ICLR 2019), at five severities.

Kinds and strengths are those of the CIFAR version of the benchmark; ``frost``, which needs artwork,
and ``spatter`` are not here. What is generated here has other noise than the published files
(CIFAR-10-C), and their names say so wherever numbers stand: ``generated/fog``.

Strengths that are lengths in pixels are of images of 32 pixels; in larger images they grow with
the side (that is ours: the benchmark has a table for each size).

What is drawn for an image depends on the kind, the severity and the position of the image in its
data set alone: neither on the batch that it comes in nor on the device.
"""

import torch
from torch import Tensor

from tune_calib.data.corruptions import blur, digital, noise, weather
from tune_calib.data.corruptions.maps import Chance, Kind
from tune_calib.determinism import child_seed
from tune_calib.spec.names import CORRUPTION_KINDS

SEVERITIES = (1, 2, 3, 4, 5)

VERSION = 2
"""Raise it when the same call gives other images: artifacts of shifted features name it."""

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (*noise.KINDS, *blur.KINDS, *weather.KINDS, *digital.KINDS)
}

# The benchmark keeps further kinds apart; no mean over kinds has them.
MAIN = tuple(name for name in KINDS if name in CORRUPTION_KINDS)

_EDGE = 1e-3  # of a grey level: what was 7 and is 6.9999 in floating point is 7


def corrupted(images: Tensor, indices: Tensor, kind: str, severity: int) -> Tensor:
    """Corrupt some images; equal calls give equal images.

    Args:
        images: (N, C, H, H), uint8; they are not changed.
        indices: (N,), int64, position of each image in its data set, which its noise is drawn by.
        kind: a key of ``KINDS``; one that ``needs_colour`` takes C = 3.
        severity: of ``SEVERITIES``, 5 the worst.

    Returns:
        (N, C, H, H), uint8, on the device of the images.
    """
    record = KINDS[kind]
    chance = Chance(child_seed(0, f"corruption/{kind}", severity), indices.to(images.device))
    pixels = images.float() / 255
    changed = record.change(pixels, record.strengths[severity - 1], chance)
    # Cut off and not rounded, as the benchmark's program writes bytes.
    return (255 * changed.clamp(0, 1) + _EDGE).to(torch.uint8)
