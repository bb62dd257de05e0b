"""Data sets that are described by their files alone: folders of images, Parquet files.

What decides numbers (classes, channels, sizes, moments, a digest of all pixels and labels) is read
once, when a run is planned, and is part of the spec: two such data sets share no network, and
training processes need not read them again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.cache import open_source
from tune_calib.data.decode import Format
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo, refuse_crop

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import DataSlot

SMALL = 96
"""Images of one size up to this are stored as they are; larger ones are resized."""

STORED, SIZE = 256, 224
"""Default size to which larger images are resized, and of the window that a network sees."""

CARVED = "carved"
"""Rule of ``data.split`` that takes a fifth of the training part as the test part."""

TEST_PARTS = ("test", "val", "valid", "validation")


@dataclass(frozen=True, eq=False)
class Scan:
    """The content of files as far as it is known before any image is decoded."""

    where: Path  # the root, for messages
    train: Callable[[Format], Split]  # returns the training part in a format
    test: Callable[[Format], Split] | None  # likewise; None if there is no test part
    classes: int  # number of classes
    is_grey: bool  # the first image of each class has no colours
    side: int | None  # height and width of the first image, in pixels, where they are equal


@dataclass(frozen=True)
class General:
    """A kind of files, which ``scan`` finds below a root by the options of a data slot."""

    name: str
    scan: "Callable[[Path | None, DataSlot], Scan]"

    def effective(self, slot: "DataSlot") -> dict[str, Any]:
        """Return fields of the record from the ``found`` of a slot; none without it."""
        found = slot.found
        if found is None:
            return {}
        return {
            **found.model_dump(),
            # Images of one size are cropped from a black border, as those of CIFAR are.
            "padding": 4 if found.size == found.stored else 0,
            **self._reading(slot, found.channels, found.stored),
        }

    def describe(self, slot: "DataSlot", root: Path | None, cache: Path | None) -> dict[str, Any]:
        """Read all images and return the fields of ``spec.ScannedData``."""
        scan = self.scan(root, slot)
        channels = 1 if scan.is_grey else 3
        if slot.resize is None and scan.side is not None and scan.side <= SMALL:
            stored, size = scan.side, slot.crop or scan.side
        else:
            stored = slot.resize or STORED
            size = slot.crop or min(SIZE, stored)
        refuse_crop(stored, size)
        reading = self._reading(slot, channels, stored)
        info = replace(DATASETS[self.name], stored=stored, channels=channels, **reading)
        known = open_source(info, root, cache).summary()
        if min(known.std) == 0:
            raise UserError(
                f"{scan.where}: a channel has one value in all training images, so that it carries "
                "no information; look at the images"
            )
        return {
            "classes": scan.classes,
            "channels": channels,
            "stored": stored,
            "size": size,
            "mean": known.mean,
            "std": known.std,
            "digest": known.digest,
        }

    def _reading(self, slot: "DataSlot", channels: int, stored: int) -> dict[str, Any]:
        """Return the loader of the images, and the text that names it in cache files."""

        def load(root: Path | None) -> Source:
            scan = self.scan(root, slot)
            keep = slot.resize is None and scan.side == stored
            convert = slot.grey == "convert"
            return _parts(scan, Format(channels, stored, not keep, convert), slot)

        columns = (slot.image_column, slot.label_column)
        return {"load": load, "reading": repr((channels, stored, slot.grey, slot.split, columns))}


def general_record(
    name: str,
    title: str,
    hint: str,
    locate: Callable[[Path | None], tuple[Path, ...]],
    scan: "Callable[[Path | None, DataSlot], Scan]",
) -> DatasetInfo:
    """Return the record of a kind of files, whose numbers are replaced by those of the files."""

    def load(root: Path | None) -> Source:
        del root
        raise UserError(
            f"{name}: its files must be read first; use the command line or an experiment file, or "
            "fill `data.found` by ResolvedRequest.with_scanned_data"
        )

    return DatasetInfo(
        name=name,
        title=title,
        classes=2,
        channels=3,
        size=SIZE,
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        padding=0,
        flip=True,
        load=load,
        locate=locate,
        split=rules.mukhoti,
        rules={CARVED: rules.tenth},
        general=General(name, scan),
        hint=hint,
    )


def _parts(scan: Scan, format_: Format, slot: "DataSlot") -> Source:
    train = scan.train(format_)
    if slot.split == CARVED:
        if scan.test is not None:
            raise UserError(f"data.split: {scan.where} has a test part; leave out carved")
        # A fifth, which torch's ``randperm`` under seed 1 puts first, is the test part.
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))
        count = len(train) // 5
        train, test = train.take(order[count:]), train.take(order[:count])
    elif scan.test is None:
        raise UserError(
            f"{scan.where} has no test part ({', '.join(TEST_PARTS)}); add it, or take a fifth of "
            f"train for it: data.split={CARVED}"
        )
    else:
        test = scan.test(format_)
    counts = torch.bincount(train.labels, minlength=scan.classes)
    if int(counts.min()) == 0:
        raise DamagedFileError(
            f"{scan.where} has no training image of class {int(counts.argmin())} (of "
            f"{scan.classes}); number classes from 0 on, without a gap"
        )
    if int(test.labels.max()) >= scan.classes:
        raise DamagedFileError(
            f"{scan.where} has test images of class {int(test.labels.max())}, but training images "
            f"of 0..{scan.classes - 1} only"
        )
    return Source(train, test)
