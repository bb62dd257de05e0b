"""Any data set of labelled images in Parquet files of the Hugging Face layout.

The parts are ``train`` and ``test``; where there is no ``test``, ``val``, ``valid`` or
``validation``. Columns are found by their usual names, or are the only ones of their kind, or are
named by ``data.image_column`` and ``data.label_column``.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tune_calib.data import huggingface
from tune_calib.data.decode import is_grey, side_of
from tune_calib.data.general import TEST_PARTS, Scan, general_record
from tune_calib.data.layouts import require_folder
from tune_calib.errors import DataNotFoundError
from tune_calib.spec.datasets import DATASETS

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import DataSlot

NAME = "parquet"
HINT = "give `data_root` a folder with train.parquet and test.parquet (or their shards)"


def locate(root: Path | None) -> tuple[Path, ...]:
    """Return the files below a root."""
    train, test = _parts(root)
    return (*train, *test)


def scan(root: Path | None, slot: "DataSlot") -> Scan:
    """Read labels and the first images."""
    train, test = _parts(root)
    columns = huggingface.Columns(
        (slot.image_column,) if slot.image_column else huggingface.IMAGE_COLUMNS,
        (slot.label_column,) if slot.label_column else (*huggingface.LABEL_COLUMNS, "labels"),
        guess=True,
    )
    first = huggingface.first_encoded(train, columns)
    read = partial(huggingface.lazy_images, classes=None, columns=columns)
    return Scan(
        where=train[0].parent,
        train=lambda format_: read(train, format_),
        test=(lambda format_: read(test, format_)) if test else None,
        classes=int(huggingface.read_labels(train, columns).max()) + 1,
        is_grey=all(is_grey(content) for content in first),
        side=side_of(first[0], f"{train[0]}: row 0"),
    )


def _parts(root: Path | None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the files of the training part, and of the test part, if there is one."""
    folder = require_folder(NAME, root, HINT)
    train = huggingface.find_files(folder, ("train",))
    if not train:
        raise DataNotFoundError(f"{NAME}: {folder} has no train.parquet; {HINT}")
    return train, huggingface.find_files(train[0].parent, TEST_PARTS)


DATASETS.register(general_record(NAME, "Parquet files", HINT, locate, scan))
