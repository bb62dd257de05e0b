"""Foreign images (out of distribution): of another data set, of held-out classes, noise."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.base import Split
from tune_calib.data.corruptions.chance import Chance
from tune_calib.data.corruptions.weather import grey
from tune_calib.data.shift.parts import Part, ShiftSet, chunks_of
from tune_calib.data.splits import load_held_out, load_test
from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.paths import content_digest
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.slots.data import DataSlot

NOISE, HELD_OUT = "noise", "heldout"
VERSION = 1  # raise it when the same images are fitted otherwise

MOST = 2
"""By which factor images may be enlarged: beyond it their blur alone tells them."""


def refuse_foreign_set(name: str, slot: DataSlot, root: Path | None) -> None:
    """Refuse a data set that tells nothing as a foreign one, or whose files are not there."""
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
            f"{info.stored or info.size}: they would be told by their blur alone"
        )
    other.locate(root)


def foreign_set(
    name: str,
    slot: DataSlot,
    root: Path | None,
    cache: Path | None,
    test: Callable[[], Split],
) -> ShiftSet:
    """Return foreign images as a network sees its own.

    ``noise`` has as many images as the test split; ``heldout`` are the test images of the classes
    that the network was not trained on; other names are data sets.
    """
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
    """Give images (N, C, H, W) uint8 the channels and the size of a network's own.

    Grey images become colour ones of three equal channels, colour ones their luma; sizes are
    changed bilinearly with antialiasing, as by Pillow.
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
