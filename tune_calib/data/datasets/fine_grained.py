"""CUB-200-2011 and FGVC-Aircraft: colour images of many sizes, resized to one size.

``cub`` (Wah et al., 2011) has 5,994 + 5,794 images of 200 bird species. Each image is resized to
256x256. Training uses random crops of 224x224, and evaluation the centre crop (MbLS). The few grey
images are converted, as in the papers.

``aircraft`` (Maji et al., 2013) has 6,667 + 3,333 images of 100 variants, resized to 448x448 with
crops of 384x384 (FeDLaS, for its vision transformer). The training part is train and val together.

The papers' programs select on the test split (`data.split: val_is_test`).
"""

from pathlib import Path

import torch

from tune_calib.data.base import Source
from tune_calib.data.decode import Format, split_of_files
from tune_calib.data.huggingface import require_range
from tune_calib.data.layouts import Layouts, locate_files, read_fields
from tune_calib.errors import DamagedFileError
from tune_calib.spec.datasets import DATASETS

CUB_CLASSES, CUB_FOLDER = 200, "CUB_200_2011"
CUB_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt")
AIRCRAFT_CLASSES, AIRCRAFT_FOLDER = 100, "fgvc-aircraft-2013b"
AIRCRAFT_LISTS = ("images_variant_trainval.txt", "images_variant_test.txt")

_HINT = (
    "set `data_root` to a folder with the unpacked archive ({}), or with Parquet in the Hugging "
    "Face layout"
)
CUB_HINT = _HINT.format(CUB_FOLDER)
AIRCRAFT_HINT = _HINT.format(f"{AIRCRAFT_FOLDER}, also of torchvision.datasets.FGVCAircraft")


def _find_cub(archive: Path) -> tuple[Path, ...]:
    lists = locate_files(map(archive.joinpath, CUB_LISTS), CUB_HINT)
    images = [archive / "images" / name for _, name in read_fields(lists[0], 2)]
    return locate_files([*lists, *images], CUB_HINT)


def _read_cub(files: tuple[Path, ...], format_: Format) -> Source:
    listed, classes, parts, *images = files
    numbers = [number for number, _ in read_fields(listed, 2)]
    labels = torch.tensor(_values(classes, numbers)) - 1
    require_range(classes, labels, CUB_CLASSES)
    is_training = torch.tensor(_values(parts, numbers)).bool()
    split = split_of_files(list(zip(images, labels.tolist(), strict=True)), format_)
    train, test = is_training.nonzero()[:, 0], (~is_training).nonzero()[:, 0]
    return Source(split.take(train), split.take(test))


def _values(file: Path, numbers: list[str]) -> list[int]:
    try:
        values = {number: int(value) for number, value in read_fields(file, 2)}
        return [values[number] for number in numbers]
    except (ValueError, KeyError) as error:
        raise DamagedFileError(
            f"{file} does not have a number for every image ({error}); unpack it again"
        ) from None


def _find_aircraft(archive: Path) -> tuple[Path, ...]:
    lists = locate_files(map((archive / "data").joinpath, AIRCRAFT_LISTS), AIRCRAFT_HINT)
    files = [*lists]
    for listed in lists:
        files += [file for file, _ in _listed(listed)]
    return locate_files(files, AIRCRAFT_HINT)


def _read_aircraft(files: tuple[Path, ...], format_: Format) -> Source:
    train, test = files[: len(AIRCRAFT_LISTS)]
    variants = sorted({variant for _, variant in _listed(train)})
    if len(variants) != AIRCRAFT_CLASSES:
        raise DamagedFileError(
            f"{train} lists {len(variants)} variants, expected {AIRCRAFT_CLASSES}: a class is "
            "missing; unpack it again"
        )
    parts = []
    for listed in (train, test):
        unknown = sorted({variant for _, variant in _listed(listed)} - set(variants))
        if unknown:
            raise DamagedFileError(
                f"{listed} lists the variant {unknown[0]!r}, which train does not have"
            )
        images = [(file, variants.index(variant)) for file, variant in _listed(listed)]
        parts.append(split_of_files(images, format_))
    return Source(*parts)


def _listed(file: Path) -> list[tuple[Path, str]]:
    folder = file.parent / "images"
    return [(folder / f"{number}.jpg", variant) for number, variant in read_fields(file, 2)]


_birds = Format(3, 256, resize=True, convert_grey=True)
_cub = Layouts("cub", CUB_CLASSES, CUB_HINT, _birds, _find_cub, _read_cub, CUB_FOLDER)
_planes = Format(3, 448, resize=True)
_aircraft = Layouts(
    "aircraft",
    AIRCRAFT_CLASSES,
    AIRCRAFT_HINT,
    _planes,
    _find_aircraft,
    _read_aircraft,
    AIRCRAFT_FOLDER,
)
for _layouts, _title, _size, _published in (
    (_cub, "CUB-200-2011", 224, (5_994, 5_794)),
    (_aircraft, "FGVC-Aircraft", 384, (6_667, 3_333)),
):
    _info = _layouts.record(_title, "imagenet", size=_size, flip=True, published=_published)
    DATASETS.register(_info)
