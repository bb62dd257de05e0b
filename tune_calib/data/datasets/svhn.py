"""SVHN, cropped digits (Netzer et al., 2011): 73,257 + 26,032 colour images of 32x32.

The extra part is not read, as in the papers. Class k is the digit k.
"""

from pathlib import Path

import numpy as np
import torch

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.decode import Format
from tune_calib.data.layouts import Layouts
from tune_calib.errors import DamagedFileError, DataNotFoundError, reading
from tune_calib.spec.datasets import DATASETS

NAME, CLASSES, CHANNELS, SIZE = "svhn", 10, 3, 32
OFFICIAL = ("train_32x32.mat", "test_32x32.mat")

HINT = (
    "set `data_root` to a folder with train_32x32.mat and test_32x32.mat (also of "
    "torchvision.datasets.SVHN), or with Parquet in the Hugging Face layout"
)


def _find(root: Path) -> tuple[Path, ...]:
    for parent in (root, root / NAME):
        files = tuple(map(parent.joinpath, OFFICIAL))
        absent = [file.name for file in files if not file.is_file()]
        if len(absent) == 1:
            raise DataNotFoundError(f"{NAME}: {parent} has no {absent[0]}; {HINT}")
        if not absent:
            return files
    return ()


def _official(file: Path) -> Split:
    from scipy.io import loadmat

    # SciPy's reader has no specific error for other files.
    with reading(file, f"is not a complete file of {NAME}", "download it again"):
        content = loadmat(file, variable_names=("X", "y"))
        pixels, labels = content["X"], content["y"].reshape(-1).astype(np.int64)
        if pixels.dtype != np.uint8 or pixels.shape != (SIZE, SIZE, CHANNELS, len(labels)):
            raise ValueError(f"X is {pixels.dtype} {pixels.shape}")
    wrong = labels[(labels < 1) | (labels > CLASSES)]
    if len(wrong):
        raise DamagedFileError(
            f"{file} has label {wrong[0]}, expected 1..{CLASSES}; is it another data set?"
        )
    images = torch.from_numpy(pixels).permute(3, 2, 0, 1).contiguous()
    # The digit 0 has label 10 in the file.
    return Split(images, torch.from_numpy(labels % CLASSES), torch.arange(len(labels)))


def _read(files: tuple[Path, ...], _: Format) -> Source:
    return Source(*map(_official, files))


FILES = Layouts(NAME, CLASSES, HINT, format=Format(CHANNELS, SIZE), find=_find, read=_read)

# Constants of CIFAR-10, as in the code of Mukhoti et al. The papers do not augment SVHN: a mirrored
# digit is not a digit, or a different one.
_rules = {"tst": rules.CIFAR10["tst"], "plp": rules.plp}
_info = FILES.record("SVHN", "cifar10", flip=False, rules=_rules, published=(73_257, 26_032))
DATASETS.register(_info)
