"""Tiny-ImageNet (Stanford CS231n): 100,000 + 10,000 colour images of 64x64 in 200 classes.

The published validation part, whose labels are known, is the test part, as in the papers. The few
grey images are converted, as in the papers.
"""

from pathlib import Path

from tune_calib.data import rules
from tune_calib.data.base import Source
from tune_calib.data.decode import Format, split_of_files
from tune_calib.data.layouts import Layouts, read_fields, require_files
from tune_calib.errors import DamagedFileError, reading
from tune_calib.spec.datasets import DATASETS

NAME, CLASSES = "tiny_imagenet", 200
FOLDER = "tiny-imagenet-200"

HINT = (
    f"set `data_root` to a folder with the unpacked archive ({FOLDER}), or with Parquet in the "
    "Hugging Face layout (train, valid)"
)


def _find(archive: Path) -> tuple[Path, ...]:
    images = [file for file, _ in _training(archive) + _validation(archive)]
    return (archive / "wnids.txt", archive / "val" / "val_annotations.txt", *images)


def _read(files: tuple[Path, ...], format_: Format) -> Source:
    archive = files[0].parent
    train = split_of_files(_training(archive), format_)
    return Source(train, split_of_files(_validation(archive), format_))


def _classes(archive: Path) -> dict[str, int]:
    """Return the label of each class, its position among the sorted names."""
    names = sorted({line[0].strip() for line in read_fields(archive / "wnids.txt", 1)})
    if len(names) != CLASSES:
        raise DamagedFileError(
            f"{archive / 'wnids.txt'} lists {len(names)} classes, expected {CLASSES}; unpack it "
            "again"
        )
    return dict(zip(names, range(CLASSES), strict=True))


def _training(archive: Path) -> list[tuple[Path, int]]:
    """Return files and labels sorted by class and path, as the papers' split rule expects."""
    images = []
    for name, number in _classes(archive).items():
        files = sorted((archive / "train" / name / "images").glob("*.JPEG"))
        if not files:
            raise DamagedFileError(
                f"{archive / 'train' / name} has no images: a class is missing; unpack it again"
            )
        images += [(file, number) for file in files]
    return images


def _validation(archive: Path) -> list[tuple[Path, int]]:
    listed, classes = archive / "val" / "val_annotations.txt", _classes(archive)
    images = []
    with reading(listed, "lists a class that is unknown", "unpack it again"):
        for name, rest in read_fields(listed, 2, None):
            images.append((archive / "val" / "images" / name, classes[rest.split()[0]]))
    require_files(tuple(file for file, _ in images), HINT)
    return images


FORMAT = Format(channels=3, size=64, convert_grey=True)
FILES = Layouts(NAME, CLASSES, HINT, FORMAT, _find, _read, FOLDER, parts=("train", "valid"))

_rules, _sizes = {"default": rules.tenth_of_each_class}, (100_000, 10_000)
_info = FILES.record(
    "Tiny-ImageNet", "imagenet", padding=4, flip=True, split=None, rules=_rules, published=_sizes
)
DATASETS.register(_info)
