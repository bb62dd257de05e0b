"""Data sets in their original archives, or in Parquet files in the Hugging Face layout.

- ``svhn`` (Netzer et al., 2011) has 73,257 + 26,032 colour images of 32x32, cropped digits. The
  extra part is not read, as in the papers. Class k is the digit k.
- ``tiny_imagenet`` (Stanford CS231n) has 100,000 + 10,000 colour images of 64x64 in 200 classes.
  The published validation part, whose labels are known, is the test part. The few grey images are
  converted. Both as in the papers.
- ``cub`` (Wah et al., 2011) has 5,994 + 5,794 images of 200 bird species. Each image is resized to
  256x256. Training uses random crops of 224x224, and evaluation the centre crop (MbLS). The few
  grey images are converted, as in the papers.
- ``aircraft`` (Maji et al., 2013) has 6,667 + 3,333 images of 100 variants, resized to 448x448
  with crops of 384x384 (FeDLaS, for its vision transformer). The training part is train and val.

The papers' programs select on the test split of the last two (`data.split: val_is_test`).
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.decode import Format, split_of_files
from tune_calib.data.huggingface import require_range
from tune_calib.data.layouts import Layouts, locate_files, read_fields
from tune_calib.errors import DamagedFileError, reading
from tune_calib.spec.datasets import DATASETS

SVHN_CLASSES, SVHN_FILES = 10, ("train_32x32.mat", "test_32x32.mat")
TINY_CLASSES, TINY_FOLDER = 200, "tiny-imagenet-200"
CUB_CLASSES, CUB_FOLDER = 200, "CUB_200_2011"
CUB_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt")
AIRCRAFT_CLASSES, AIRCRAFT_FOLDER = 100, "fgvc-aircraft-2013b"
AIRCRAFT_LISTS = ("images_variant_trainval.txt", "images_variant_test.txt")

_HINT = "set `data_root` to a folder with {}, or with Parquet in the Hugging Face layout"
SVHN_HINT = _HINT.format("train_32x32.mat and test_32x32.mat (also of torchvision.datasets.SVHN)")
TINY_HINT = _HINT.format(f"the unpacked archive ({TINY_FOLDER})") + " (train, valid)"
CUB_HINT = _HINT.format(f"the unpacked archive ({CUB_FOLDER})")
AIRCRAFT_HINT = _HINT.format(
    f"the unpacked archive ({AIRCRAFT_FOLDER}, also of torchvision.datasets.FGVCAircraft)"
)


def _find_svhn(root: Path) -> tuple[Path, ...]:
    for parent in (root, root / "svhn"):
        files = tuple(map(parent.joinpath, SVHN_FILES))
        if any(file.is_file() for file in files):
            return locate_files(files, SVHN_HINT)
    return ()


def _read_svhn(files: tuple[Path, ...], _: Format) -> Source:
    from scipy.io import loadmat

    parts = []
    for file in files:
        # SciPy's reader has no specific error for other files.
        with reading(file, "is not a complete file of svhn", "download it again"):
            content = loadmat(file, variable_names=("X", "y"))
            pixels, labels = content["X"], content["y"].reshape(-1).astype(np.int64)
            if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(labels)):
                raise ValueError(f"X is {pixels.dtype} {pixels.shape}")
            if labels.min() < 1 or labels.max() > SVHN_CLASSES:
                raise ValueError(f"a label is not in 1..{SVHN_CLASSES}")
        images = torch.from_numpy(pixels).permute(3, 2, 0, 1).contiguous()
        # The digit 0 has label 10 in the file.
        parts.append(
            Split(images, torch.from_numpy(labels % SVHN_CLASSES), torch.arange(len(labels)))
        )
    return Source(*parts)


def _find_tiny(archive: Path) -> tuple[Path, ...]:
    images = [file for file, _ in _training(archive) + _validation(archive)]
    return (archive / "wnids.txt", archive / "val" / "val_annotations.txt", *images)


def _read_tiny(files: tuple[Path, ...], format_: Format) -> Source:
    archive = files[0].parent
    train = split_of_files(_training(archive), format_)
    return Source(train, split_of_files(_validation(archive), format_))


def _classes(archive: Path) -> dict[str, int]:
    names = sorted({line[0].strip() for line in read_fields(archive / "wnids.txt", 1)})
    if len(names) != TINY_CLASSES:
        file = archive / "wnids.txt"
        raise DamagedFileError(f"{file} lists {len(names)} classes, not 200; unpack it again")
    return dict(zip(names, range(TINY_CLASSES), strict=True))


def _training(archive: Path) -> list[tuple[Path, int]]:
    """Return files and labels sorted by class and path, as the papers' split rule expects."""
    images = []
    for name, number in _classes(archive).items():
        files = sorted((archive / "train" / name / "images").glob("*.JPEG"))
        if not files:
            raise DamagedFileError(f"{archive / 'train' / name} has no images; unpack it again")
        images += [(file, number) for file in files]
    return images


def _validation(archive: Path) -> list[tuple[Path, int]]:
    listed, classes = archive / "val" / "val_annotations.txt", _classes(archive)
    images = []
    with reading(listed, "lists a class that is unknown", "unpack it again"):
        for name, rest in read_fields(listed, 2, None):
            images.append((archive / "val" / "images" / name, classes[rest.split()[0]]))
    locate_files(tuple(file for file, _ in images), TINY_HINT)
    return images


def _find_cub(archive: Path) -> tuple[Path, ...]:
    lists = locate_files(tuple(map(archive.joinpath, CUB_LISTS)), CUB_HINT)
    images = [archive / "images" / name for _, name in read_fields(lists[0], 2)]
    return locate_files((*lists, *images), CUB_HINT)


def _read_cub(files: tuple[Path, ...], format_: Format) -> Source:
    listed, classes, parts, *images = files
    numbers = [number for number, _ in read_fields(listed, 2)]
    labels = _values(classes, numbers) - 1
    require_range(classes, labels, CUB_CLASSES)
    is_training = _values(parts, numbers).bool()
    split = split_of_files(list(zip(images, labels.tolist(), strict=True)), format_)
    return Source(*(split.take(part.nonzero()[:, 0]) for part in (is_training, ~is_training)))


def _values(file: Path, numbers: list[str]) -> Tensor:
    with reading(file, "does not have a number for every image", "unpack it again"):
        values = {number: int(value) for number, value in read_fields(file, 2)}
        return torch.tensor([values[number] for number in numbers])


def _find_aircraft(archive: Path) -> tuple[Path, ...]:
    lists = locate_files(tuple(map((archive / "data").joinpath, AIRCRAFT_LISTS)), AIRCRAFT_HINT)
    images = [file for listed in lists for file, _ in _listed(listed)]
    return locate_files((*lists, *images), AIRCRAFT_HINT)


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


_svhn = Layouts("svhn", SVHN_CLASSES, SVHN_HINT, Format(3, 32), _find_svhn, _read_svhn)
_tiny = Layouts(
    "tiny_imagenet", TINY_CLASSES, TINY_HINT, Format(3, 64, convert_grey=True), _find_tiny,
    _read_tiny, TINY_FOLDER, parts=("train", "valid"),
)  # fmt: skip
_birds = Format(3, 256, resize=True, convert_grey=True)
_cub = Layouts("cub", CUB_CLASSES, CUB_HINT, _birds, _find_cub, _read_cub, CUB_FOLDER)
_aircraft = Layouts(
    "aircraft", AIRCRAFT_CLASSES, AIRCRAFT_HINT, Format(3, 448, resize=True), _find_aircraft,
    _read_aircraft, AIRCRAFT_FOLDER,
)  # fmt: skip

_svhn_rules = {"tst": rules.CIFAR10["tst"], "plp": rules.plp}
_tiny_rules = {"default": rules.tenth_of_each_class}
for _info in (
    # Constants of CIFAR-10, as in the code of Mukhoti et al. The papers do not augment SVHN: a
    # mirrored digit is not a digit, or a different one.
    _svhn.record("SVHN", "cifar10", flip=False, rules=_svhn_rules, published=(73_257, 26_032)),
    _tiny.record(
        "Tiny-ImageNet", "imagenet", padding=4, flip=True, split=None, rules=_tiny_rules,
        published=(100_000, 10_000),
    ),
    _cub.record("CUB-200-2011", "imagenet", size=224, flip=True, published=(5_994, 5_794)),
    _aircraft.record("FGVC-Aircraft", "imagenet", size=384, flip=True, published=(6_667, 3_333)),
):  # fmt: skip
    DATASETS.register(_info)
