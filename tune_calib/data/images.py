"""Images that are not all in memory: gathered when they are asked for, as bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Places = NDArray[np.int64]

# Images of a cache that is written, or of a split that is made resident, at a time.
CHUNK = 64


class Rows(Protocol):
    """A source of images: a memory map, or files to decode."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, C, H, W)."""

    def read(self, rows: Places) -> Tensor:
        """Read some images, (M, C, H, W) uint8, on the CPU, in that order.

        Raises:
            DamagedFileError: one of them is damaged.
        """


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Images of one split, (N, C, H, W) uint8; used as the tensor of them would be.

    An index by a tensor (M,) or a slice, and each part of ``split``, is a tensor on the device.

    Attributes:
        rows: where they come from.
        positions: which of them, (N,) int64, on the CPU.
        device: where they are wanted.
    """

    rows: Rows
    positions: Tensor
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def all_of(cls, rows: Rows) -> "LazyImages":
        """Return every image of some rows."""
        return cls(rows, torch.arange(rows.shape[0]))

    @property
    def shape(self) -> torch.Size:
        """(N, C, H, W)."""
        return torch.Size((len(self), *self.rows.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """That of raw pixels."""
        return torch.uint8

    def __len__(self) -> int:
        """Return number of images."""
        return len(self.positions)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Return some images, on the device."""
        places = index.cpu() if isinstance(index, Tensor) else index
        return self.rows.read(self.positions[places].numpy()).to(self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield all images in their order, so many at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def take(self, places: Tensor) -> "LazyImages":
        """Return the images at some positions of this split, (M,) int64; none is read."""
        return replace(self, positions=self.positions[places.cpu()])

    def to(self, device: torch.device | str) -> "LazyImages":
        """Return the same images, gathered to a device; none is read."""
        return replace(self, device=torch.device(device))

    def resident(self) -> Tensor:
        """Return all of them as one tensor."""
        # Filled in place: parts joined at the end would take twice the memory.
        images = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for start, part in zip(range(0, len(self), CHUNK), self.split(CHUNK), strict=True):
            images[start : start + CHUNK] = part
        return images


Images = Tensor | LazyImages
