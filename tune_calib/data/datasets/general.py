"""Data sets that are defined only by their files: folders of images, Parquet files.

Everything that affects results (classes, channels, sizes, moments, a digest of all pixels and
labels) is read once, when a run is planned, and becomes part of the spec. The placeholder of
imported features and logits, which have no images, is here too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import torch
from PIL import Image

from tune_calib.data import huggingface, rules
from tune_calib.data.base import Source, Split
from tune_calib.data.cache import find_equal_images, open_source, settled, summarise
from tune_calib.data.decode import Format, scan_headers, split_of_files
from tune_calib.data.layouts import locate_folder, require_classes
from tune_calib.errors import DamagedFileError, DataNotFoundError, UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo, Quick, refuse_crop
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.slots.data import DataSlot

FOLDER, PARQUET = "imagefolder", "parquet"
FOLDER_HINT = "set `data_root` to a folder with train/CLASS/IMAGE and test/CLASS/IMAGE"
PARQUET_HINT = "set `data_root` to a folder with train.parquet and test.parquet (or their shards)"

SMALL = 96  # largest size of square images that are stored without resizing
STORED, SIZE = 256, 224  # default size to which larger images are resized, and of their crops
CARVED = "carved"  # rule of ``data.split`` that uses a fifth of the training part as the test part
TEST_PARTS = ("test", "val", "valid", "validation")
DECODING = 2  # must be raised when other pixels or labels are read from the same files

Images = list[tuple[Path, int]]  # files and their labels


@dataclass(frozen=True, eq=False)
class Scan:
    """The properties of files that are known before any image is decoded."""

    where: Path  # the root, for messages
    train: Callable[[Format], Split]  # returns the training part in a format
    test: Callable[[Format], Split] | None  # the same for the test part, or None without one
    classes: int  # number of classes
    names: tuple[str, ...]  # of the classes, if they have any
    # Whether the first image of each class has no colours; with ``data.grey=convert``, all images.
    is_grey: bool
    side: int | None  # height and width of the first image, in pixels, if they are equal


@dataclass(frozen=True)
class General:
    """A kind of files, which ``scan`` finds below a root, given a data slot."""

    name: str
    scan: Callable[[Path | None, DataSlot], Scan]

    def effective(self, slot: DataSlot) -> dict[str, Any]:
        scanned = slot.found
        if scanned is None:
            return {}
        # Images stored at the input size are cropped from a black border, as in CIFAR.
        padding = 4 if scanned.size == scanned.stored else 0
        reading = self._reading(slot, scanned.channels, scanned.stored)
        return {**scanned.model_dump(), "padding": padding, **reading}

    def describe(self, slot: DataSlot, root: Path | None, cache: Path | None) -> dict[str, Any]:
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
        summary = summarise(open_source(info, root, cache))
        if min(summary.std) == 0:
            raise UserError(
                f"{scan.where}: a channel has the same value in all training images; check them"
            )
        fields = {"classes": scan.classes, "channels": channels, "stored": stored, "size": size}
        return {**fields, **asdict(summary)}

    def class_names(self, slot: DataSlot, root: Path | None) -> tuple[str, ...]:
        """Return the names of the classes of a slot, or () if the files are gone or name none."""
        names = slot.classes
        if not names:
            with suppress(UserError):
                names = self.scan(root, slot).names
        return names if len(names) == slot.info.classes else ()

    def _reading(self, slot: DataSlot, channels: int, stored: int) -> dict[str, Any]:
        def load(root: Path | None) -> Source:
            scan = self.scan(root, slot)
            resize = slot.resize is not None or scan.side != stored
            format_ = Format(channels, stored, resize, convert_grey=slot.grey == "convert")
            return _load(scan, format_, slot)

        columns = (slot.image_column, slot.label_column, slot.classes)
        split = f"{CARVED} 2" if slot.split == CARVED else slot.split
        reading = (DECODING, channels, stored, slot.grey, split, columns)
        return {"load": load, "reading": repr(reading)}


def _load(scan: Scan, format_: Format, slot: DataSlot) -> Source:
    train = scan.train(format_)
    if slot.split == CARVED:
        if scan.test is not None:
            raise UserError(f"data.split: {scan.where} has a test part; omit carved")
        # The first fifth of torch's ``randperm`` with seed 1 is the test part, with equal images in
        # the part of the first of them.
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))
        count = len(train) // 5
        source = Source(train, train.take(order[:0]))
        train = find_equal_images(replace(source, train=settled(train, source))).train
        parts = rules.unite([order[:count], order[count:]], train.image_ids)
        test, train = (replace(train.take(part), image_ids=None) for part in parts)
    elif scan.test is None:
        raise UserError(
            f"{scan.where} has no test part; add test, or use a fifth of train: data.split={CARVED}"
        )
    else:
        test = scan.test(format_)
    require_classes(f"{scan.where} has no training", train, scan.classes)
    if int(test.labels.max()) >= scan.classes:
        raise DamagedFileError(
            f"{scan.where} has test images of class {int(test.labels.max())}, which train lacks"
        )
    return Source(train, test)


def _folder_parts(
    root: Path | None, classes: Sequence[str] = ()
) -> tuple[Images, Images, Sequence[str]]:
    folder = locate_folder(FOLDER, root, FOLDER_HINT)
    train, names = folder / "train", []
    if train.is_dir():
        names = [path.name for path in _list_shown(train) if path.is_dir()]
    if len(names) < 2:
        raise DataNotFoundError(f"{FOLDER}: {train} has {len(names)} class folders; {FOLDER_HINT}")
    if classes and (wrong := sorted({*classes} ^ {*names})):
        reason = f"it is in {train}" if wrong[0] in names else f"{train} has no such folder"
        raise UserError(
            f"data.classes must name each class folder: {wrong[0]!r}, but {reason}; give all of "
            f"{', '.join(names)}"
        )
    names = list(classes) or names
    images = _list_images(train, names)
    test = next((folder / part for part in TEST_PARTS if (folder / part).is_dir()), None)
    test_images = _list_images(test, names) if test is not None else []
    return images, test_images, names


def _list_shown(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _files_below(folder: Path) -> Iterator[Path]:
    for path in _list_shown(folder):
        if path.is_dir():
            yield from _files_below(path)
        else:
            yield path


def _list_images(part: Path, classes: Sequence[str]) -> Images:
    for path in _list_shown(part):
        if path.is_dir() and path.name not in classes:
            raise DamagedFileError(f"{path} belongs to a class that train does not have")
        if not path.is_dir() and path.suffix.lower() in Image.registered_extensions():
            raise DamagedFileError(f"{path} is in no class folder; move it into one, or away")
    images: Images = []
    for label, name in enumerate(classes):
        files = []
        if (part / name).is_dir():
            files = sorted(_files_below(part / name))
        if not files:
            raise DamagedFileError(f"{part / name} contains no images: a class is missing")
        for file in files:
            if file.suffix.lower() not in Image.registered_extensions() or not file.is_file():
                raise DamagedFileError(
                    f"{file} is not named like an image file, or links to none; move it away"
                )
            images.append((file, label))
    return images


def _scan_folder(root: Path | None, slot: DataSlot) -> Scan:
    train, test, classes = _folder_parts(root, slot.classes)
    images = train + test
    if slot.grey != "convert":  # the first image of each class
        labels = [label for _, label in train]
        images = [train[labels.index(label)] for label in range(len(classes))]
    is_grey, side = scan_headers((file, str(file)) for file, _ in images)
    where, names = locate_folder(FOLDER, root, FOLDER_HINT), tuple(classes)
    read_test = partial(split_of_files, test) if test else None
    read_train = partial(split_of_files, train)
    return Scan(where, read_train, read_test, len(names), names, is_grey, side)


def _locate_folder(root: Path | None) -> tuple[Path, ...]:
    train, test, _ = _folder_parts(root)
    return tuple(file for file, _ in train + test)


def _parquet_parts(root: Path | None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    folder = locate_folder(PARQUET, root, PARQUET_HINT)
    train = huggingface.find_files(folder, ("train",))
    if not train:
        raise DataNotFoundError(f"{PARQUET}: {folder} has no train.parquet; {PARQUET_HINT}")
    return train, huggingface.find_files(train[0].parent, TEST_PARTS)


def _locate_parquet(root: Path | None) -> tuple[Path, ...]:
    train, test = _parquet_parts(root)
    return train + test


def _scan_parquet(root: Path | None, slot: DataSlot) -> Scan:
    train, test = _parquet_parts(root)
    columns = huggingface.Columns(
        image=(slot.image_column,) if slot.image_column else huggingface.IMAGE_COLUMNS,
        label=(slot.label_column,) if slot.label_column else (*huggingface.LABEL_COLUMNS, "labels"),
        guess=True,
        classes=slot.classes or None,
    ).settled(train[0])
    labels = huggingface.read_labels(train, columns, len(slot.classes) or None)
    batches = huggingface.read_batches((*train, *test), columns)
    if slot.grey != "convert":
        batches = islice(batches, 1)
    is_grey, side = scan_headers(chain.from_iterable(batch.images() for batch in batches))
    read = partial(huggingface.lazy_images, classes=len(slot.classes) or None, columns=columns)
    read_test = partial(read, test) if test else None
    classes, names = len(slot.classes) or int(labels.max()) + 1, columns.classes or ()
    return Scan(train[0].parent, partial(read, train), read_test, classes, names, is_grey, side)


def _refuse(text: str, _: Path | None) -> NoReturn:
    raise UserError(text)


# Trains in minutes on a few CPU cores, whatever the size and the number of the images. Without
# augmentation, since a mirrored image may belong to another class.
_QUICK = Quick(
    title="images of 32x32 pixels, a small network without augmentation",
    settings={
        "data": {"resize": 32},
        "network": {
            "backbone": "small_vgg", "epochs": 20, "batch_size": 32, "lr": 0.05, "augment": "none",
            "schedule": "one_cycle", "warmup": 0.2,
        },
        "head": {"augment": "none", "epochs": 20, "batch_size": 32},
    },
    backbones=("small_vgg",),
)  # fmt: skip

# Properties that depend on the files have placeholders.
for _name, _title, _hint, _locate, _scan in (
    (FOLDER, "Folder of images", FOLDER_HINT, _locate_folder, _scan_folder),
    (PARQUET, "Parquet files", PARQUET_HINT, _locate_parquet, _scan_parquet),
):
    _unread = (
        f"{_name}: its files must be read first; use the command line or an experiment file, or "
        "fill `data.found` with ResolvedRequest.with_scanned_data"
    )
    _info = DatasetInfo(
        _name, _title, classes=2, channels=3, size=SIZE, mean=(0.5,) * 3, std=(0.5,) * 3,
        padding=0, flip=True, load=partial(_refuse, _unread), locate=_locate, hint=_hint,
        split=rules.mukhoti, rules={CARVED: rules.tenth}, general=General(_name, _scan),
        quick=_QUICK,
    )  # fmt: skip
    DATASETS.register(_info)

_IMPORTED = DatasetInfo(
    IMPORTED, "Imported", classes=2, channels=1, size=1, mean=(0.5,), std=(0.5,), padding=0,
    flip=False, load=partial(_refuse, "this needs images, which imported data do not have"),
    locate=lambda _: (), hint="tune-calib import",
)  # fmt: skip

DATASETS.register_family({IMPORTED: _IMPORTED}.get, lambda: [IMPORTED])
