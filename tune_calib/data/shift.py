"""Shift sets: images other than the test split, on which a finished classifier is evaluated.

They are requested by words (docs/pages/data.md#shifted-data). The name of a set shows its origin:
``corrupt/fog`` is published, ``generated/fog`` was generated here, and ``ood/cifar100`` is out of
distribution.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.base import LazyImages, Places, Split
from tune_calib.data.corruptions.kinds import KINDS, MAIN, SEVERITIES, corrupted, grey
from tune_calib.data.corruptions.kinds import VERSION as CORRUPTIONS_VERSION
from tune_calib.data.corruptions.maps import Chance
from tune_calib.data.layouts import find_unpacked
from tune_calib.data.splits import load_held_out, load_test
from tune_calib.determinism import child_seed
from tune_calib.errors import DamagedFileError, DataNotFoundError, UserError, reading
from tune_calib.files.paths import content_digest
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import CORRUPTION_KINDS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.text import nearest

CORRUPTIONS, GENERATED, NOISE, HELD_OUT = "corruptions", "generated", "noise", "heldout"
VERSION = 1  # must be raised when OOD images are converted differently

MOST = 2  # largest factor by which images may be enlarged; beyond it, their blur alone reveals them

LABELS = "labels.npy"
_FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


@dataclass(frozen=True, eq=False)
class Part:
    name: str  # severity; empty in a set of one part
    split: Split  # OOD images have labels of their own data set, or 0
    # Changes images (N, C, H, H) uint8, given their ``indices`` in the split.
    change: Callable[[Tensor, Tensor], Tensor] = lambda images, _: images

    def chunks(self, size: int, device: torch.device) -> Iterator[Tensor]:
        split = self.split
        together = zip(split.images.split(size), split.indices.split(size), strict=True)
        for images, indices in together:
            yield self.change(images.to(device), indices)


@dataclass(frozen=True, eq=False)
class ShiftSet:
    name: str  # ``ood/SET``, ``corrupt/KIND`` for published files or ``generated/KIND``
    made: str  # what determines the images, besides the name and the network's data
    parts: Callable[[], Sequence[Part]]  # reads or generates the parts


def find_sets(words: Sequence[str], slot: DataSlot, root: Path | None) -> list[str]:
    if words and slot.imported is not None:
        raise UserError("imported data have no images that could be shifted; omit `shift`")
    return list(dict.fromkeys(name for word in words for name in _find_named(word, slot, root)))


def _find_named(word: str, slot: DataSlot, root: Path | None) -> Iterator[str]:
    what, colon, listed = word.partition(":")
    kinds = list(map(str.strip, listed.split(","))) if colon else []
    info = slot.info
    if what == CORRUPTIONS and (folder := _published_folder(info, root)) is not None:
        published = list(open_published(folder, info)[0])
        # By default all but the extra kinds of the benchmark.
        for kind in kinds or [kind for kind in published if kind in CORRUPTION_KINDS]:
            if kind not in published:
                raise UserError(f"{folder} has no {kind}.npy{nearest(kind, published)}")
            yield f"corrupt/{kind}"
    elif what in (CORRUPTIONS, GENERATED):
        for kind in kinds or MAIN:
            if kind not in KINDS:
                raise UserError(f"corruption {kind!r} is unknown{nearest(kind, list(KINDS))}")
            if KINDS[kind].needs_colour and info.channels == 1:
                raise UserError(f"{kind} changes colours, but the images of {info.name} are grey")
            yield f"generated/{kind}"
    elif colon:
        raise UserError(f"{word}: only {CORRUPTIONS} and {GENERATED} have kinds", setting="shift")
    else:
        known_words = [CORRUPTIONS, GENERATED, NOISE, HELD_OUT, *DATASETS]
        if what not in known_words:
            raise UserError(f"{word!r} is unknown{nearest(what, known_words)}", setting="shift")
        _refuse_foreign_set(what, slot, root)
        yield f"ood/{what}"


def open_set(
    name: str, slot: DataSlot, root: Path | None, cache: Path | None, test: Callable[[], Split]
) -> ShiftSet:
    family, _, what = name.partition("/")
    if family == "generated":
        return generated(what, test)
    if family == "corrupt":
        folder = _published_folder(slot.info, root)
        if folder is None:
            raise UserError(f"{root} no longer contains the published {name}; restore it")
        return _published_set(what, folder, slot.info, test)
    return foreign_set(what, slot, root, cache, test)


def generated(kind: str, test: Callable[[], Split]) -> ShiftSet:
    def parts() -> list[Part]:
        split = test()
        return [Part(str(n), split, partial(corrupted, kind=kind, severity=n)) for n in SEVERITIES]

    return ShiftSet(f"generated/{kind}", f"version {CORRUPTIONS_VERSION}", parts)


def _published_folder(info: DatasetInfo, root: Path | None) -> Path | None:
    if info.name not in _FOLDERS or root is None:
        return None
    return find_unpacked(info.name, root, _FOLDERS[info.name])


def open_published(folder: Path, info: DatasetInfo) -> tuple[dict[str, NDArray[Any]], Tensor]:
    """Open CIFAR-10-C or CIFAR-100-C (Hendrycks and Dietterich, ICLR 2019), memory-mapped.

    Returns the images of each kind, (5 N, H, H, C) uint8, by severity, and the labels, (5 N,).
    """
    files = sorted(file for file in folder.glob("*.npy") if file.name != LABELS)
    if not files or not (folder / LABELS).is_file():
        raise DataNotFoundError(
            f"{folder} contains no shift set; it needs {LABELS} and a file for each corruption"
        )
    labels = torch.from_numpy(_read_npy(folder / LABELS).astype(np.int64))
    stored = len(info.relabel or range(info.classes))
    if labels.ndim != 1 or int(labels.min()) < 0 or int(labels.max()) != stored - 1:
        raise DamagedFileError(
            f"{folder / LABELS} does not have the {stored} classes of {info.name}; does it belong "
            "to another data set?"
        )
    kinds = {file.stem: _read_npy(file) for file in files}
    expected = (len(labels), info.size, info.size, info.channels)
    for kind, pixels in kinds.items():
        if pixels.shape != expected or pixels.dtype != np.uint8 or len(labels) % len(SEVERITIES):
            raise DamagedFileError(
                f"{folder / kind}.npy is {pixels.dtype} {pixels.shape}, expected uint8 {expected}, "
                "with five severities of equal size; download it again"
            )
    return kinds, labels


def _published_set(
    kind: str, folder: Path, info: DatasetInfo, test: Callable[[], Split]
) -> ShiftSet:

    def parts() -> list[Part]:
        kinds, labels = open_published(folder, info)
        split, size = test(), len(labels) // len(SEVERITIES)
        positions = split.indices.cpu()
        expected = torch.tensor(info.relabel or range(info.classes))[labels[:size]]
        if int(positions.max()) >= size or not torch.equal(expected[positions], split.labels.cpu()):
            raise UserError(
                f"{folder / LABELS} does not match the labels of the test images of {info.name} in "
                "their order; use the data set and the files as published"
            )

        def read(rows: Places) -> Tensor:
            return torch.from_numpy(np.array(kinds[kind][rows])).permute(0, 3, 1, 2).contiguous()

        shape, parts = (info.channels, info.size, info.size), []
        for severity in SEVERITIES:
            images = LazyImages(read, shape, (severity - 1) * size + positions)
            parts.append(Part(str(severity), replace(split, images=images)))
        return parts

    digest = content_digest([folder / LABELS, folder / f"{kind}.npy"])
    return ShiftSet(f"corrupt/{kind}", digest[:16], parts)


def _read_npy(file: Path) -> NDArray[Any]:
    with reading(file, "is not a complete NumPy file", "download it again"):
        # Never a pickle, which can run code.
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


def _refuse_foreign_set(name: str, slot: DataSlot, root: Path | None) -> None:
    if name == HELD_OUT and not slot.held_out_classes:
        raise UserError(
            f"{HELD_OUT}: the network was trained on all classes; hold some out with "
            "data.held_out_classes, e.g. [8, 9]",
            setting="shift",
        )
    if name in (NOISE, HELD_OUT):
        return
    info, other = slot.info, DATASETS[name]
    if other.general is not None:
        raise UserError(
            f"{name} has no fixed classes and sizes, so it cannot be a shift set; register the "
            "images as their own data set"
        )
    if name == info.name:
        raise UserError(f"{name} is in distribution for a network that was trained on it")
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
    info = slot.info

    def parts() -> list[Part]:
        if name == NOISE:
            images = test().images
            indices = torch.arange(len(images))
            return [Part("", Split(images, 0 * indices, indices), _noise)]
        if name == HELD_OUT:
            split = load_held_out(slot, root, cache)
        else:
            split = load_test(DataSlot(dataset=name), root, cache)
        return [Part("", split, lambda images, _: fitted(images, info))]

    made = [f"version {VERSION}"]
    source = slot.dataset if name == HELD_OUT else name
    if name not in (NOISE, HELD_OUT) and (origin := DATASETS.origin(name)):
        made.append(origin)
    if name != NOISE and (files := DATASETS[source].locate(root)):  # none if it is embedded
        made.append(content_digest(files))
    return ShiftSet(f"ood/{name}", " ".join(made), parts)


def fitted(images: Tensor, info: DatasetInfo) -> Tensor:
    """Convert images (N, C, H, W) uint8 to the channels and the size of a network's images."""
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


def _noise(images: Tensor, indices: Tensor) -> Tensor:
    chance = Chance(child_seed(0, "ood/noise"), indices.to(images.device))
    pixels = (0.5 + chance.normal(*images.shape[1:])).clamp(0, 1)
    return (255 * pixels).round().to(torch.uint8)
