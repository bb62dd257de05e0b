"""Splits of uint8 images, and the published parts that a loader returns."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tune_calib.data.images import Images, LazyImages
from tune_calib.spec.datasets import DatasetInfo  # noqa: F401  plug-ins import it from here


@dataclass(frozen=True, eq=False)
class Split:
    """Images of one split.

    Attributes:
        images: (N, C, H, W), uint8, raw pixels in [0, 255]; of a large set they are gathered when
            they are asked for.
        labels: (N,), int64, in [0, classes).
        indices: (N,), int64, position of each image in the set as it is stored.
    """

    images: Images
    labels: Tensor
    indices: Tensor

    def __len__(self) -> int:
        """Return number of images."""
        return len(self.labels)

    def to(self, device: torch.device | str) -> "Split":
        """Return the same split on a device."""
        return Split(self.images.to(device), self.labels.to(device), self.indices.to(device))

    def take(self, positions: Tensor) -> "Split":
        """Return the images at some positions of this split, (M,) int64, in that order."""
        images = self.images
        taken = images.take(positions) if isinstance(images, LazyImages) else images[positions]
        return Split(taken, self.labels[positions], self.indices[positions])

    def resident(self) -> "Split":
        """Return the same split with all of its images in memory."""
        if isinstance(self.images, LazyImages):
            return replace(self, images=self.images.resident())
        return self


@dataclass(frozen=True, eq=False)
class Source:
    """The published training and test parts, untouched."""

    train: Split
    test: Split
