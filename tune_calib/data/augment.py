"""Normalisation and augmentation of batches of raw images on their device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:  # the inner loop of training needs only torch
    from tune_calib.spec.datasets import DatasetInfo


def normalise(images: Tensor, info: "DatasetInfo") -> Tensor:
    """Crop images (N, C, H, W) uint8 to the centre, scale them to [0, 1] and normalise them."""
    mean, std = _constants(info.mean, info.std, images.device)
    # In place, since the conversion makes a copy; in the order of torchvision, for equal bits.
    return crop_centre(images, info).to(torch.float32).div_(255).sub_(mean).div_(std)


def crop_centre(images: Tensor, info: "DatasetInfo") -> Tensor:
    if not info.spare or images.shape[3] == info.size:
        return images
    edge = info.spare // 2
    return images[:, :, edge : edge + info.size, edge : edge + info.size]


@lru_cache(maxsize=32)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    # Cached: copying to a GPU for every batch would make the CPU wait.
    return tuple(torch.tensor(x, device=device)[:, None, None] for x in (mean, std))  # type: ignore[return-value]


@dataclass(frozen=True)
class Draws:
    # (2, N), rows and columns in [0, 2 * padding + spare]; None disables cropping.
    offsets: Tensor | None
    mirrored: Tensor | None  # (N, 1, 1, 1), 0 or 1; None disables mirroring
    padding: int  # width of the black border in pixels
    spare: int = 0  # pixels by which an image is larger than its crop

    def to(self, device: torch.device) -> "Draws":
        offsets = self.offsets.to(device) if self.offsets is not None else None
        mirrored = self.mirrored.to(device) if self.mirrored is not None else None
        return replace(self, offsets=offsets, mirrored=mirrored)

    def part(self, first: int, last: int) -> "Draws":
        offsets = self.offsets[:, first:last] if self.offsets is not None else None
        mirrored = self.mirrored[first:last] if self.mirrored is not None else None
        return replace(self, offsets=offsets, mirrored=mirrored)


def draw_views(
    batches: Sequence[int], padding: int, flip: bool, generator: torch.Generator, spare: int = 0
) -> Draws:
    """Draw crops and flips for the images of batches of some sizes, with a CPU generator."""
    places = 2 * padding + spare + 1
    all_offsets, all_mirrored = [], []
    for samples in batches:
        if places > 1:
            all_offsets.append(torch.randint(0, places, (2, samples), generator=generator))
        if flip:
            all_mirrored.append(torch.randint(0, 2, (samples, 1, 1, 1), generator=generator))
    offsets = torch.cat(all_offsets, 1) if all_offsets else None
    mirrored = torch.cat(all_mirrored) if all_mirrored else None
    return Draws(offsets, mirrored, padding, spare=spare)


def crop_flip(images: Tensor, draws: Draws) -> Tensor:
    """Return crops (N, C, H - spare, W - spare) of images with a black border, some mirrored."""
    if draws.offsets is not None:
        height, width = (side - draws.spare for side in images.shape[2:])
        border = F.pad(images, [draws.padding] * 4)
        # Views of all windows, so that indexing copies all images at once instead of one by one.
        windows = border.unfold(2, height, 1).unfold(3, width, 1)
        rows, columns = draws.offsets
        images = windows[torch.arange(len(images), device=images.device), :, rows, columns]
    if draws.mirrored is not None:
        images = torch.where(draws.mirrored.bool(), images.flip(3), images)
    return images
