"""Any data set of labelled images in Parquet files of the Hugging Face layout.

The parts are ``train`` and ``test``; where there is no ``test``, ``val``, ``valid`` or
``validation``. Columns are found by their usual names, or are the only ones of their kind, or are
named: ``data.image_column``, ``data.label_column``.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from tune_calib.data.decode import is_grey, side_of
from tune_calib.data.find import require_folder
from tune_calib.data.general import TEST_PARTS, Scan, record
from tune_calib.data.huggingface import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    Columns,
    find_files,
    first_encoded,
    lazy_images,
    read_labels,
)
from tune_calib.errors import DataNotFoundError
from tune_calib.spec.datasets import DATASETS

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import DataSlot

NAME = "parquet"
HINT = "give `data_root` a folder with train.parquet and test.parquet (or their shards)"


def locate(root: Path | None) -> tuple[Path, ...]:
    """Find the files below a root."""
    train, test = _parts(root)
    return (*train, *test)


def scan(root: Path | None, slot: "DataSlot") -> Scan:
    """Read labels and the first images."""
    train, test = _parts(root)
    columns = Columns(
        (slot.image_column,) if slot.image_column else IMAGE_COLUMNS,
        (slot.label_column,) if slot.label_column else (*LABEL_COLUMNS, "labels"),
        guess=True,
    )
    first = first_encoded(train, columns)
    return Scan(
        where=train[0].parent,
        train=lambda format_: lazy_images(train, format_, None, columns),
        test=(lambda format_: lazy_images(test, format_, None, columns)) if test else None,
        classes=int(read_labels(train, columns).max()) + 1,
        is_grey=all(is_grey(content) for content in first),
        side=side_of(first[0], f"{train[0]}: row 0"),
    )


def _parts(root: Path | None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return files of the training part, and of the test part, if there is one."""
    folder = require_folder(NAME, root, HINT)
    train = find_files(folder, ("train",))
    if not train:
        raise DataNotFoundError(f"{NAME}: {folder} has no train.parquet; {HINT}")
    return train, find_files(train[0].parent, TEST_PARTS)


DATASETS.register(record(NAME, "Parquet files", HINT, locate, scan))
