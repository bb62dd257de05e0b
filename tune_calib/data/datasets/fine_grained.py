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
from tune_calib.data.layouts import Layouts, read_fields, require_files
from tune_calib.errors import reading
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
    lists = require_files(tuple(map(archive.joinpath, CUB_LISTS)), CUB_HINT)
    images = [archive / "images" / name for _, name in read_fields(lists[0], 2)]
    return require_files((*lists, *images), CUB_HINT)


def _read_cub(files: tuple[Path, ...], format_: Format) -> Source:
    listed, classes, parts, *images = files
    numbers = [number for number, _ in read_fields(listed, 2)]
    labels = torch.tensor(_values(classes, numbers)) - 1
    require_range(classes, labels, CUB_CLASSES)
    is_training = torch.tensor(_values(parts, numbers)).bool()
    split = split_of_files(list(zip(images, labels.tolist(), strict=True)), format_)
    return Source(*(split.take(part.nonzero()[:, 0]) for part in (is_training, ~is_training)))


def _values(file: Path, numbers: list[str]) -> list[int]:
    with reading(file, "does not have a number for every image", "unpack it again"):
        values = {number: int(value) for number, value in read_fields(file, 2)}
        return [values[number] for number in numbers]


def _find_aircraft(archive: Path) -> tuple[Path, ...]:
    lists = require_files(
        tuple((archive / "data").joinpath(x) for x in AIRCRAFT_LISTS), AIRCRAFT_HINT
    )
    images = [file for listed in lists for file, _ in _listed(listed)]
    return require_files((*lists, *images), AIRCRAFT_HINT)


def _read_aircraft(files: tuple[Path, ...], format_: Format) -> Source:
    parts, numbers = [], dict[str, int]()
    for listed in files[: len(AIRCRAFT_LISTS)]:  # train first, which has all variants
        rows = _listed(listed)
        numbers = numbers or {name: n for n, name in enumerate(sorted({name for _, name in rows}))}
        with reading(listed, "does not have the variants of the data set", "unpack it again"):
            if len(numbers) != AIRCRAFT_CLASSES:
                raise ValueError(f"{len(numbers)} variants, expected {AIRCRAFT_CLASSES}")
            parts.append(split_of_files([(file, numbers[name]) for file, name in rows], format_))
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
