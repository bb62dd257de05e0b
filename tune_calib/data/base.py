"""What a data set is to the rest of the program: splits of uint8 images and a record."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tune_calib.recipe import Quick


@dataclass(frozen=True, eq=False)
class Split:
    """Images of one split.

    Attributes:
        images: (N, C, H, W), uint8, raw pixels in [0, 255].
        labels: (N,), int64, in [0, classes).
        indices: (N,), int64, position of each image in the set as it is stored.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor

    def __len__(self) -> int:
        """Number of images."""
        return len(self.labels)

    def to(self, device: torch.device | str) -> "Split":
        """The same split on a device."""
        return Split(self.images.to(device), self.labels.to(device), self.indices.to(device))

    def take(self, positions: Tensor) -> "Split":
        """The images at some positions of this split, (M,) int64, in that order."""
        return Split(self.images[positions], self.labels[positions], self.indices[positions])


@dataclass(frozen=True, eq=False)
class Source:
    """What a loader returns: the published training and test parts, untouched."""

    train: Split
    test: Split


@dataclass(frozen=True, eq=False)
class DatasetInfo:
    """A data set as registered in ``DATASETS``.

    Attributes:
        name: registry key.
        title: how it is printed; heads of tables leave out what stands in parentheses.
        classes: number of classes C.
        channels: colour channels of an image.
        size: height and width of an image, in pixels.
        mean: per channel, of pixels scaled to [0, 1].
        std: per channel, of pixels scaled to [0, 1].
        padding: pixels of black border before a random crop of the old size; 0 is no crop.
        flip: whether mirroring an image keeps its class.
        load: reads ``Source`` from a root; raises DataNotFoundError or DamagedFileError.
        locate: the files that ``load`` reads from a root, and by which its result may be
            cached; none if the data is embedded. Raises DataNotFoundError.
        split: published rule; from the length of the training part to the positions of the
            train split and of the validation split in it, (N,) int64 each.
        hint: how to get the data, for error messages.
        quick: the cheapest setting that is worth a table; it holds where no recipe is named.
    """

    name: str
    title: str
    classes: int
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool
    load: Callable[[Path | None], Source]
    locate: Callable[[Path | None], tuple[Path, ...]]
    split: Callable[[int], tuple[Tensor, Tensor]]
    hint: str = "nothing to download"
    quick: Quick | None = None
