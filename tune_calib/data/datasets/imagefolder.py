"""Any folder of images: ``train/CLASS/IMAGE`` and ``test/CLASS/IMAGE``.

Classes are the folders of ``train``, sorted by name. The test part is ``test``; else
``val``, ``valid`` or ``validation``.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from tune_calib.data.base import Split
from tune_calib.data.decode import Format, is_grey, side_of, split_of_files
from tune_calib.data.find import require_folder
from tune_calib.data.general import TEST_PARTS, Scan, record
from tune_calib.errors import DamagedFileError, DataNotFoundError
from tune_calib.spec.datasets import DATASETS

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import DataSlot

NAME = "imagefolder"
HINT = "give `data_root` a folder that holds train/CLASS/IMAGE and test/CLASS/IMAGE"

Found = list[tuple[Path, int]]


def locate(root: Path | None) -> tuple[Path, ...]:
    """Find every image below a root."""
    folder, classes, test = _folders(root)
    parts = [folder / "train", *([test] if test else [])]
    return tuple(file for part in parts for file, _ in _listed(part, classes))


def scan(root: Path | None, slot: "DataSlot") -> Scan:
    """Read names and the first images."""
    del slot
    folder, classes, test = _folders(root)
    train = _listed(folder / "train", classes)
    first = {label: file for file, label in reversed(train)}
    return Scan(
        where=folder,
        train=partial(_split, train),
        test=partial(_split, _listed(test, classes)) if test else None,
        classes=len(classes),
        is_grey=all(is_grey(file) for file in first.values()),
        side=side_of(train[0][0], str(train[0][0])),
    )


def _folders(root: Path | None) -> tuple[Path, list[str], Path | None]:
    """Return the root, the names of the classes, and the folder of the test part."""
    folder = require_folder(NAME, root, HINT)
    train = folder / "train"
    names = sorted(path.name for path in train.glob("*") if path.is_dir()) if train.is_dir() else []
    if len(names) < 2:
        raise DataNotFoundError(f"{NAME}: {train} holds {len(names)} folders of classes; {HINT}")
    test = next((folder / part for part in TEST_PARTS if (folder / part).is_dir()), None)
    return folder, names, test


def _listed(part: Path, classes: list[str]) -> Found:
    """Return every image of a part and its label, sorted by class and path."""
    foreign = sorted({path.name for path in part.glob("*") if path.is_dir()} - set(classes))
    if foreign:
        raise DamagedFileError(f"{part / foreign[0]} is of a class that train does not have")
    Image.init()
    known = Image.registered_extensions()
    found: Found = []
    for label, name in enumerate(classes):
        files = sorted(
            path
            for path in (part / name).rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )
        other = next((path for path in files if path.suffix.lower() not in known), None)
        if other is not None:
            raise DamagedFileError(f"{other} is no image by its name; move it away")
        if not files:
            raise DamagedFileError(f"{part / name} holds no image: a class is missing")
        found += [(file, label) for file in files]
    return found


def _split(found: Found, format_: Format) -> Split:
    files, labels = zip(*found, strict=True)
    return split_of_files(files, labels, format_)


DATASETS.register(record(NAME, "Folder of images", HINT, locate, scan))
