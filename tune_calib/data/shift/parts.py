"""What every shift set is: parts of images that come some at a time, never all in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.data.base import Split

Chunks = Callable[[int, torch.device], Iterator[Tensor]]
"""From a number of images and a device to the images of a part, (N, C, H, H) uint8, in order."""


@dataclass(frozen=True, eq=False)
class Part:
    """Images of a shift set that are judged together.

    Attributes:
        name: within its set, a severity; empty in a set of one part.
        labels: (N,), int64; of foreign images those of their own data set, or 0.
        chunks: gives the images.
    """

    name: str
    labels: Tensor
    chunks: Chunks


@dataclass(frozen=True, eq=False)
class ShiftSet:
    """A shift set as a network sees it.

    Attributes:
        name: ``ood/SET``, ``corrupt/KIND`` of published files or ``generated/KIND``.
        made: what beside the name and the network's data decides its images.
        parts: reads or makes it when it is called.
    """

    name: str
    made: str
    parts: Callable[[], Sequence[Part]]


def chunks_of(split: Split, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> Chunks:
    """Return chunks of a split, changed by a function of images and their positions as stored."""

    def chunks(size: int, device: torch.device) -> Iterator[Tensor]:
        together = zip(split.images.split(size), split.indices.split(size), strict=True)
        for images, indices in together:
            here = images.to(device)
            yield here if change is None else change(here, indices)

    return chunks
