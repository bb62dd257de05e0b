"""Images of data sets, in memory or on disk, and the splits and parts that they form."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Places = NDArray[np.int64]

CHUNK = 64  # images processed at once when a cache is written or a split is read into memory

AHEAD = 2  # batches that are read before a GPU needs them

Read = Callable[[Places], Tensor]
"""Reads the images of some rows, (M,), in that order: (M, C, H, W) uint8, on the CPU."""


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Images of one split, (N, C, H, W) uint8, that are read when they are indexed."""

    read: Read  # reads images from a memory map, or decodes files
    image: tuple[int, ...]  # (C, H, W)
    positions: Tensor  # (N,) int64, rows of the images, on the CPU
    device: torch.device | str = "cpu"

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.image))

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        if isinstance(index, Tensor):
            index = index.cpu()
        return self.read(self.positions[index].numpy()).to(self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        if len(self):
            yield from self.batches(torch.arange(len(self)).split(size))

    def batches(self, order: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each batch, (M,); a thread reads the next ones for a GPU."""
        # At once, since each copy of positions from a GPU would wait for its steps.
        places = torch.cat(list(order)).cpu().split([len(batch) for batch in order])
        if torch.device(self.device).type == "cpu":
            yield from map(self.__getitem__, places)
            return
        # In a new thread, the first operation may otherwise run on all cores.
        use_threads = partial(torch.set_num_threads, torch.get_num_threads())
        rows = deque(self.positions[batch].numpy() for batch in places)
        futures = deque[Future[Tensor]]()
        with ThreadPoolExecutor(1, initializer=use_threads) as thread:
            while rows or futures:
                while rows and len(futures) <= AHEAD:
                    futures.append(thread.submit(self.read, rows.popleft()))
                # Pinned in this thread, since another one may not do so during a capture.
                pinned = futures.popleft().result().pin_memory()
                yield pinned.to(self.device, non_blocking=True)

    def take(self, places: Tensor) -> "LazyImages":
        return replace(self, positions=self.positions[places.cpu()])

    def to(self, device: torch.device | str) -> "LazyImages":
        return replace(self, device=device)

    def resident(self) -> Tensor:
        # Filled in place: concatenating parts at the end would take twice the memory.
        images = torch.empty(self.shape, dtype=torch.uint8, device=self.device)
        for start, part in zip(range(0, len(self), CHUNK), self.split(CHUNK), strict=True):
            images[start : start + CHUNK] = part
        return images


Images = Tensor | LazyImages


@dataclass(frozen=True, eq=False)
class Split:
    """Images of one split; those of a large data set are read when they are indexed."""

    images: Images  # (N, C, H, W), uint8, raw pixels in [0, 255]
    labels: Tensor  # (N,), int64, in [0, classes)
    indices: Tensor  # (N,), int64, position of each image in the stored data set
    # (N,), int64, equal for equal images; None if all differ, and where published draws are kept.
    image_ids: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> "Split":
        labels, indices = self.labels.to(device), self.indices.to(device)
        return Split(self.images.to(device), labels, indices, self.image_ids)

    def take(self, positions: Tensor) -> "Split":
        images, image_ids = self.images, None
        if self.image_ids is not None:
            image_ids = self.image_ids[positions.cpu()]
        images = images.take(positions) if isinstance(images, LazyImages) else images[positions]
        return Split(images, self.labels[positions], self.indices[positions], image_ids)

    def resident(self) -> "Split":
        if isinstance(self.images, LazyImages):
            return replace(self, images=self.images.resident())
        return self


@dataclass(frozen=True)
class Summary:
    digest: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """The published training and test parts, unchanged."""

    train: Split
    test: Split
    summary: Summary | None = field(default=None, kw_only=True)  # in a cache file
    # Of each image of the two parts, the number of the first that equals it, from a cache file.
    image_ids: tuple[Sequence[int], ...] = field(default=(), kw_only=True)
    shared: int = field(default=0, kw_only=True)  # test images that equal a training image
