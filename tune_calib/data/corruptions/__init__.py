"""Generated corruptions: the kinds of Hendrycks and Dietterich (ICLR 2019), at five severities.

Kinds and strengths are those of the CIFAR version of the benchmark; docs/pages/data.md#corruptions
lists the differences. The random numbers of an image depend only on the kind, the severity and the
position of the image in its data set, not on its batch or the device.
"""

import torch
from torch import Tensor

from tune_calib.data.corruptions.kinds import KINDS
from tune_calib.data.corruptions.maps import Chance
from tune_calib.determinism import child_seed
from tune_calib.spec.names import CORRUPTION_KINDS

SEVERITIES = (1, 2, 3, 4, 5)

VERSION = 2
"""Must be raised when the same call returns different images; part of the key of artifacts."""

# Without the extra kinds of the benchmark, which are in no mean over kinds.
MAIN = tuple(name for name in KINDS if name in CORRUPTION_KINDS)

_EDGE = 1e-3  # in grey levels: a 7 that is 6.9999 in floating point stays 7


def corrupted(images: Tensor, indices: Tensor, kind: str, severity: int) -> Tensor:
    """Corrupt some images deterministically.

    Args:
        images: (N, C, H, H), uint8; they are not changed.
        indices: (N,), int64, position of each image in its data set, which seeds its noise.
        kind: a key of ``KINDS``; kinds with ``needs_colour`` need C = 3.
        severity: one of ``SEVERITIES``; 5 is the worst.

    Returns:
        (N, C, H, H), uint8, on the device of the images.
    """
    record = KINDS[kind]
    chance = Chance(child_seed(0, f"corruption/{kind}", severity), indices.to(images.device))
    pixels = images.float() / 255
    changed = record.change(pixels, record.strengths[severity - 1], chance)
    # Truncated, not rounded, as in the benchmark's program.
    return (255 * changed.clamp(0, 1) + _EDGE).to(torch.uint8)
