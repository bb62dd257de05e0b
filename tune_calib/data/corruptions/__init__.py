"""Generated corruptions: the kinds of Hendrycks and Dietterich (ICLR 2019), at five severities.

Kinds and strengths are those of the CIFAR version of the benchmark, without ``frost``, which needs
artwork, and ``spatter``. Generated images have other noise than the published files (CIFAR-10-C),
and their names say so: ``generated/fog``.

Strengths that are lengths in pixels are those of images of 32 pixels; they grow with the side (the
benchmark has a table for each size instead).

Random numbers of an image depend only on the kind, the severity and the position of the image in
its data set, not on its batch or the device.
"""

import torch
from torch import Tensor

from tune_calib.data.corruptions.kinds import KINDS
from tune_calib.data.corruptions.maps import Chance
from tune_calib.determinism import child_seed
from tune_calib.spec.names import CORRUPTION_KINDS

SEVERITIES = (1, 2, 3, 4, 5)

VERSION = 2
"""To be raised when the same call gives other images: artifacts of shifted features name it."""

# The benchmark keeps further kinds apart; no mean over kinds has them.
MAIN = tuple(name for name in KINDS if name in CORRUPTION_KINDS)

_EDGE = 1e-3  # of a grey level: what was 7 and is 6.9999 in floating point is 7


def corrupted(images: Tensor, indices: Tensor, kind: str, severity: int) -> Tensor:
    """Corrupt some images; equal calls return equal images.

    Args:
        images: (N, C, H, H), uint8; they are not changed.
        indices: (N,), int64, position of each image in its data set, the seed of its noise.
        kind: a key of ``KINDS``; one that ``needs_colour`` takes C = 3.
        severity: one of ``SEVERITIES``, 5 the worst.

    Returns:
        (N, C, H, H), uint8, on the device of the images.
    """
    record = KINDS[kind]
    chance = Chance(child_seed(0, f"corruption/{kind}", severity), indices.to(images.device))
    pixels = images.float() / 255
    changed = record.change(pixels, record.strengths[severity - 1], chance)
    # Cut off and not rounded, as the benchmark's program writes bytes.
    return (255 * changed.clamp(0, 1) + _EDGE).to(torch.uint8)
