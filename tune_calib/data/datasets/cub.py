"""CUB-200-2011 (Wah et al., 2011): 5,994 + 5,794 colour images of 200 birds, of many sizes.

Each is resized to 256x256, of which training sees random windows of 224x224, and evaluation the one
in the middle (MbLS). Grey images, of which there are some, are converted, as in the papers. Their
programs choose on the test split (`data.split: val_is_test`); here a tenth of train is held out.
"""

from pathlib import Path

import torch

from tune_calib.data.base import Source
from tune_calib.data.decode import Format, split_of_files
from tune_calib.data.find import fields_of, require_files, unpacked
from tune_calib.data.huggingface import require_range
from tune_calib.data.layouts import Layouts
from tune_calib.errors import DamagedFileError
from tune_calib.spec.datasets import DATASETS

NAME, CLASSES, STORED, SIZE = "cub", 200, 256, 224
FOLDER = "CUB_200_2011"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt")

HINT = (
    f"give `data_root` a folder that holds the unpacked archive ({FOLDER}), or Parquet in the "
    "Hugging Face layout"
)


def _find(root: Path) -> tuple[Path, ...]:
    archive = unpacked(NAME, root, FOLDER)
    if archive is None:
        return ()
    lists = require_files([archive / name for name in LISTS], HINT)
    names = fields_of(lists[0], 2)
    return require_files([*lists, *(archive / "images" / name for _, name in names)], HINT)


def _read(files: tuple[Path, ...], format_: Format) -> Source:
    listed, classes, parts, *images = files
    numbers = [number for number, _ in fields_of(listed, 2)]
    labels = torch.tensor(_values(classes, numbers)) - 1
    require_range(classes, labels, CLASSES)
    is_training = torch.tensor(_values(parts, numbers)).bool()
    whole = split_of_files(images, labels.tolist(), format_)
    return Source(*(whole.take(part.nonzero()[:, 0]) for part in (is_training, ~is_training)))


def _values(file: Path, numbers: list[str]) -> list[int]:
    """Return the integer that a list gives for each image."""
    try:
        values = {number: int(value) for number, value in fields_of(file, 2)}
        return [values[number] for number in numbers]
    except (ValueError, KeyError) as error:
        raise DamagedFileError(
            f"{file} does not give a number for every image ({error}); unpack it again"
        ) from None


FORMAT = Format(channels=3, size=STORED, resize=True, convert_grey=True)
FILES = Layouts(NAME, CLASSES, HINT, FORMAT, _find, _read)

DATASETS.register(
    FILES.record("CUB-200-2011", "imagenet", size=SIZE, flip=True, published=(5_994, 5_794))
)
