"""What a kind of corruption is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from tune_calib.data.corruptions.chance import Chance

REFERENCE_SIDE = 32


@dataclass(frozen=True)
class Kind:
    """A kind of corruption.

    Attributes:
        name: as the benchmark's files are named.
        group: of the benchmark.
        strengths: of the five severities, as the benchmark's program has them for CIFAR.
        change: from pixels (N, C, H, H) in [0, 1], a strength and random streams to pixels.
        needs_colour: it changes nothing in a grey image.
    """

    name: str
    group: Literal["noise", "blur", "weather", "digital"]
    strengths: tuple[Any, Any, Any, Any, Any]
    change: Callable[[Tensor, Any, Chance], Tensor]
    needs_colour: bool = False


def scale(pixels: Tensor) -> float:
    """Return the factor of lengths: 1 up to images of the size of CIFAR."""
    return max(1.0, pixels.shape[-1] / REFERENCE_SIDE)
