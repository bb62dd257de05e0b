"""CUB-200-2011 (Wah et al., 2011): 5,994 + 5,794 colour images of 200 birds, of many sizes.

Each is resized to 256x256, of which training sees random windows of 224x224, and evaluation the one
in the middle (MbLS). Grey images, of which there are some, are converted, as in the papers. Their
programs choose on the test split (`data.split: val_is_test`); here a tenth of train is held out.
"""

from functools import partial
from pathlib import Path

import torch

from tune_calib.data import rules
from tune_calib.data.base import DatasetInfo, Source, Split
from tune_calib.data.constants import NORMS
from tune_calib.data.decode import FileRows, Format
from tune_calib.data.find import (
    fields_of,
    require_classes,
    require_files,
    require_folder,
    unpacked,
)
from tune_calib.data.huggingface import find_parts, lazy_images, require_range
from tune_calib.data.images import LazyImages
from tune_calib.errors import DamagedFileError, DataNotFoundError
from tune_calib.registry import DATASETS

NAME, CLASSES, STORED, SIZE = "cub", 200, 256, 224
FOLDER = "CUB_200_2011"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt")

HINT = (
    f"give `data_root` a folder that holds the unpacked archive ({FOLDER}), or Parquet in the "
    "Hugging Face layout"
)


def locate(root: Path | None) -> tuple[Path, ...]:
    """Find the files below a root: Parquet of Hugging Face, else the archive.

    Raises:
        DataNotFoundError: they are not there, or in part only.
    """
    folder = require_folder(NAME, root, HINT)
    if found := find_parts(NAME, folder, HINT):
        return (*found[0], *found[1])
    archive = unpacked(NAME, folder, FOLDER)
    if archive is None:
        raise DataNotFoundError(f"{NAME}: {root} does not hold it; {HINT}")
    lists = require_files([archive / name for name in LISTS], HINT)
    names = fields_of(lists[0], 2)
    return require_files([*lists, *(archive / "images" / name for _, name in names)], HINT)


def load_at(root: Path | None, stored: int) -> Source:
    """List the images; they are decoded when they are asked for.

    Args:
        root: where the data set lies.
        stored: height and width that every image is resized to.

    Raises:
        DataNotFoundError: the root does not hold it.
        DamagedFileError: a list or a file is damaged, or a class is missing.
    """
    files = locate(root)
    format_ = Format(channels=3, size=stored, resize=True, convert_grey=True)
    if files[0].suffix == ".parquet":
        parts = find_parts(NAME, files[0].parent, HINT)
        source = Source(*(lazy_images(part, format_, CLASSES) for part in parts))
    else:
        source = _archive(files[0].parent, files[len(LISTS) :], format_)
    return require_classes(source, files, CLASSES)


def _archive(archive: Path, files: tuple[Path, ...], format_: Format) -> Source:
    numbers = [number for number, _ in fields_of(archive / LISTS[0], 2)]
    labels = torch.tensor(_values(archive / LISTS[1], numbers)) - 1
    require_range(archive / LISTS[1], labels, CLASSES)
    is_training = torch.tensor(_values(archive / LISTS[2], numbers)).bool()
    whole = Split(LazyImages.all_of(FileRows(files, format_)), labels, torch.arange(len(files)))
    return Source(*(whole.take(part.nonzero()[:, 0]) for part in (is_training, ~is_training)))


def _values(file: Path, numbers: list[str]) -> list[int]:
    """The integer that a list gives for each image."""
    try:
        values = {number: int(value) for number, value in fields_of(file, 2)}
        return [values[number] for number in numbers]
    except (ValueError, KeyError) as error:
        raise DamagedFileError(
            f"{file} does not give a number for every image ({error}); unpack it again"
        ) from None


DATASETS.register(
    DatasetInfo(
        name=NAME,
        title="CUB-200-2011",
        classes=CLASSES,
        channels=3,
        size=SIZE,
        stored=STORED,
        mean=NORMS["imagenet"][0],
        std=NORMS["imagenet"][1],
        padding=0,
        flip=True,
        load=partial(load_at, stored=STORED),
        load_at=load_at,
        locate=locate,
        split=rules.mukhoti,
        published=(5_994, 5_794),
        hint=HINT,
    )
)
