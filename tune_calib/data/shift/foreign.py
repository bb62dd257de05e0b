"""Shift sets, and those of foreign images: another data set, held-out classes, noise."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.base import Split
from tune_calib.data.corruptions.maps import Chance
from tune_calib.data.corruptions.weather import grey
from tune_calib.data.splits import load_held_out, load_test
from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.paths import content_digest
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.slots.data import DataSlot

Chunks = Callable[[int, torch.device], Iterator[Tensor]]
"""From a number of images and a device to the images of a part, (N, C, H, H) uint8, in order."""


@dataclass(frozen=True, eq=False)
class Part:
    """Images of a shift set that are judged together."""

    name: str  # severity; empty in a set of one part
    labels: Tensor  # (N,), int64; those of foreign images are of their own data set, or 0
    chunks: Chunks  # returns the images


@dataclass(frozen=True, eq=False)
class ShiftSet:
    """A shift set as a network sees it."""

    name: str  # ``ood/SET``, ``corrupt/KIND`` of published files or ``generated/KIND``
    made: str  # what decides its images, apart from the name and the network's data
    parts: Callable[[], Sequence[Part]]  # reads or makes the parts when it is called


def chunks_of(split: Split, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> Chunks:
    """Return chunks of a split, changed by a function of images and their stored positions."""

    def chunks(size: int, device: torch.device) -> Iterator[Tensor]:
        together = zip(split.images.split(size), split.indices.split(size), strict=True)
        for images, indices in together:
            here = images.to(device)
            yield here if change is None else change(here, indices)

    return chunks


NOISE, HELD_OUT = "noise", "heldout"
VERSION = 1  # raise it when the same images are fitted otherwise

MOST = 2
"""Largest factor by which images may be enlarged: beyond it, their blur alone reveals them."""


def refuse_foreign_set(name: str, slot: DataSlot, root: Path | None) -> None:
    """Refuse a data set that is no use as a foreign one, or whose files are not there."""
    if name == HELD_OUT and not slot.held_out_classes:
        raise UserError(
            f"{HELD_OUT}: the network was trained on all classes; hold some out by "
            "data.held_out_classes, e.g. [8, 9]",
            setting="shift",
        )
    if name in (NOISE, HELD_OUT):
        return
    info = slot.info
    other: DatasetInfo = DATASETS[name]
    if other.general is not None:
        raise UserError(
            f"{name} has no fixed classes and sizes and is no shift set; register the images as a "
            "data set of their own"
        )
    if name == info.name:
        raise UserError(f"images of {name} are not foreign to a network that was trained on it")
    side = other.stored or other.size
    if (info.stored or info.size) > MOST * side:
        raise UserError(
            f"images of {name} are {side} pixels wide and would be enlarged to "
            f"{info.stored or info.size}: their blur alone would reveal them"
        )
    other.locate(root)


def foreign_set(
    name: str, slot: DataSlot, root: Path | None, cache: Path | None, test: Callable[[], Split]
) -> ShiftSet:
    """Return foreign images in the form of a network's own, as many as the test split in noise."""
    info = slot.info

    def parts() -> list[Part]:
        if name == NOISE:
            return [_noise(info, len(test()))]
        if name == HELD_OUT:
            split = load_held_out(slot, root, cache)
        else:
            split = load_test(DataSlot(dataset=name), root, cache)
        return [Part("", split.labels, chunks_of(split, lambda images, _: fitted(images, info)))]

    made, source = [f"version {VERSION}"], slot.dataset if name == HELD_OUT else name
    if name not in (NOISE, HELD_OUT) and (origin := DATASETS.origin(name)):
        made.append(origin)
    # Another copy of a data set holds other images; one that comes with a library has no files.
    if name != NOISE and (files := DATASETS[source].locate(root)):
        made.append(content_digest(files))
    return ShiftSet(f"ood/{name}", " ".join(made), parts)


def fitted(images: Tensor, info: DatasetInfo) -> Tensor:
    """Convert images (N, C, H, W) uint8 to the channels and the size of a network's own.

    Grey images get three equal channels, colour images become their luma; sizes are changed
    bilinearly with antialiasing, as by Pillow.
    """
    side = info.stored or info.size
    if images.shape[1] == 1 and info.channels == 3:
        images = images.expand(-1, 3, -1, -1)
    if tuple(images.shape[1:]) == (info.channels, side, side):
        return images
    pixels = images.float()
    if info.channels == 1:
        pixels = grey(pixels)
    if pixels.shape[2:] != (side, side):
        pixels = F.interpolate(pixels, size=(side, side), mode="bilinear", antialias=True)
    return pixels.round().clamp(0, 255).to(torch.uint8)


def _noise(info: DatasetInfo, samples: int) -> Part:
    """Draw pixels of mean 1/2 and standard deviation 1, cut to [0, 1] (Liang et al., ICLR 2018)."""
    side = info.stored or info.size

    def chunks(size: int, device: torch.device) -> Iterator[Tensor]:
        for places in torch.arange(samples).split(size):
            chance = Chance(child_seed(0, "ood/noise"), places.to(device))
            pixels = (0.5 + chance.normal(info.channels, side, side)).clamp(0, 1)
            yield (255 * pixels).round().to(torch.uint8)

    return Part("", torch.zeros(samples, dtype=torch.int64), chunks)
