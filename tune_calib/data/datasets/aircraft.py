"""FGVC-Aircraft (Maji et al., 2013): 6,667 + 3,333 colour images of 100 variants, of many sizes.

Each is resized to 448x448, of which training sees random windows of 384x384, and evaluation the one
in the middle (FeDLaS, for its vision transformer). Training is on train and val together. The
papers' programs choose on the test split (`data.split: val_is_test`); here a tenth of train is held
out.
"""

from pathlib import Path

from tune_calib.data.base import Source
from tune_calib.data.decode import Format, split_of_files
from tune_calib.data.find import fields_of, require_files, unpacked
from tune_calib.data.layouts import Layouts
from tune_calib.errors import DamagedFileError
from tune_calib.spec.datasets import DATASETS

NAME, CLASSES, STORED, SIZE = "aircraft", 100, 448, 384
FOLDER = "fgvc-aircraft-2013b"
LISTS = ("images_variant_trainval.txt", "images_variant_test.txt")

HINT = (
    f"give `data_root` a folder that holds the unpacked archive ({FOLDER}, also of "
    "torchvision.datasets.FGVCAircraft), or Parquet in the Hugging Face layout"
)


def _find(root: Path) -> tuple[Path, ...]:
    archive = unpacked(NAME, root, FOLDER)
    if archive is None:
        return ()
    lists = require_files([archive / "data" / name for name in LISTS], HINT)
    files = [file for listed in lists for file, _ in _listed(listed)]
    return require_files([*lists, *files], HINT)


def _read(files: tuple[Path, ...], format_: Format) -> Source:
    train, test = files[: len(LISTS)]
    variants = sorted({variant for _, variant in _listed(train)})
    if len(variants) != CLASSES:
        raise DamagedFileError(
            f"{train} names {len(variants)} variants, expected {CLASSES}: a class is missing; "
            "unpack it again"
        )
    parts = []
    for listed in (train, test):
        pairs = _listed(listed)
        unknown = next((variant for _, variant in pairs if variant not in variants), None)
        if unknown is not None:
            raise DamagedFileError(f"{listed} names the variant {unknown!r}, which train has not")
        labels = [variants.index(variant) for _, variant in pairs]
        parts.append(split_of_files([file for file, _ in pairs], labels, format_))
    return Source(*parts)


def _listed(file: Path) -> list[tuple[Path, str]]:
    """Return image and variant of each line."""
    folder = file.parent / "images"
    return [(folder / f"{number}.jpg", variant) for number, variant in fields_of(file, 2)]


FILES = Layouts(NAME, CLASSES, HINT, Format(channels=3, size=STORED, resize=True), _find, _read)

DATASETS.register(
    FILES.record("FGVC-Aircraft", "imagenet", size=SIZE, flip=True, published=(6_667, 3_333))
)
