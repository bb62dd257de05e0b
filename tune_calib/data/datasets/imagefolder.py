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
from tune_calib.data.general import TEST_PARTS, Scan, general_record
from tune_calib.data.layouts import require_folder
from tune_calib.errors import DamagedFileError, DataNotFoundError
from tune_calib.spec.datasets import DATASETS

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import DataSlot

NAME = "imagefolder"
HINT = "give `data_root` a folder that holds train/CLASS/IMAGE and test/CLASS/IMAGE"

Found = list[tuple[Path, int]]


def locate(root: Path | None) -> tuple[Path, ...]:
    """Return every image below a root."""
    train, test, _ = _parts(root)
    return tuple(file for file, _ in (*train, *test))


def scan(root: Path | None, slot: "DataSlot") -> Scan:
    """Read the names of all images, and the first image of each class."""
    del slot
    train, test, classes = _parts(root)
    first = {label: file for file, label in reversed(train)}
    return Scan(
        where=require_folder(NAME, root, HINT),
        train=partial(_split, train),
        test=partial(_split, test) if test else None,
        classes=classes,
        is_grey=all(is_grey(file) for file in first.values()),
        side=side_of(train[0][0], str(train[0][0])),
    )


def _parts(root: Path | None) -> tuple[Found, Found, int]:
    """Return the images of the training and test part, and the number of classes."""
    folder = require_folder(NAME, root, HINT)
    train = folder / "train"
    names = sorted(path.name for path in train.glob("*") if path.is_dir()) if train.is_dir() else []
    if len(names) < 2:
        raise DataNotFoundError(f"{NAME}: {train} holds {len(names)} folders of classes; {HINT}")
    test = next((folder / part for part in TEST_PARTS if (folder / part).is_dir()), None)
    return _listed(train, names), _listed(test, names) if test else [], len(names)


def _listed(part: Path, classes: list[str]) -> Found:
    """Return every image of a part and its label, sorted by class and path."""
    foreign = sorted({path.name for path in part.glob("*") if path.is_dir()} - set(classes))
    if foreign:
        raise DamagedFileError(f"{part / foreign[0]} is of a class that train does not have")
    Image.init()
    known = Image.registered_extensions()
    found: Found = []
    for label, name in enumerate(classes):
        paths = sorted((part / name).rglob("*"))
        files = [path for path in paths if path.is_file() and not path.name.startswith(".")]
        other = next((path for path in files if path.suffix.lower() not in known), None)
        if other is not None:
            raise DamagedFileError(f"{other} has no name of an image file; move it away")
        if not files:
            raise DamagedFileError(f"{part / name} holds no image: a class is missing")
        found += [(file, label) for file in files]
    return found


def _split(found: Found, format_: Format) -> Split:
    files, labels = zip(*found, strict=True)
    return split_of_files(files, labels, format_)


DATASETS.register(general_record(NAME, "Folder of images", HINT, locate, scan))
