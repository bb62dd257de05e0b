"""CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32x32 in ten classes.

Positions count the rows as they are stored. Hugging Face and torchvision store them in different
orders, so the published split indices pick the published images from torchvision's folder alone;
from Parquet they pick an equally random split. Keep one artifact store for one copy of the data.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tune_calib.data.base import DatasetInfo, Source, Split
from tune_calib.data.huggingface import find_shards, read_images
from tune_calib.errors import DamagedFileError, DataNotFoundError
from tune_calib.recipe import Quick
from tune_calib.registry import DATASETS

CLASSES, CHANNELS, SIZE = 10, 3, 32

TORCHVISION = "cifar-10-batches-py"

HINT = (
    "give `data_root` a folder with train.parquet and test.parquet in the Hugging Face layout, "
    "or the root of torchvision.datasets.CIFAR10(root, download=True)"
)


def split(samples: int) -> tuple[Tensor, Tensor]:
    """Positions of the train and validation splits, by the rule of Mukhoti et al., NeurIPS 2020.

    ``np.random.seed(1); np.random.shuffle(indices)``: the first tenth is for validation. The
    state is local; numpy's global one is not touched. (The code of MbLS, FeDLaS and AdaFocal
    does the same.) The first half of the validation list becomes ``select``, the second ``calib``.

    Args:
        samples: size of the training part; 50,000 if it is whole.

    Returns:
        (N - N // 10,) and (N // 10,), int64.
    """
    indices = np.arange(samples)
    np.random.RandomState(1).shuffle(indices)
    shuffled = torch.from_numpy(indices)
    held_out = samples // 10
    return shuffled[held_out:], shuffled[:held_out]


def locate(root: Path | None) -> tuple[Path, ...]:
    """Find the files below a root: Parquet of Hugging Face, else the batches of torchvision.

    Raises:
        DataNotFoundError: they are not there, or in part only.
    """
    if root is None:
        raise DataNotFoundError(f"cifar10 is not embedded: {HINT}")
    if not root.is_dir():
        raise DataNotFoundError(f"cifar10: {root} is not a folder; {HINT}")
    for parent in (root, root / "cifar10"):
        for folder in (parent, parent / "plain_text", parent / "data"):
            train, test = find_shards(folder, "train"), find_shards(folder, "test")
            if train and test:
                return (*train, *test)
            if train or test:
                absent = "test" if train else "train"
                raise DataNotFoundError(f"cifar10: {folder} has no {absent}.parquet; {HINT}")
    for folder in (root, root / TORCHVISION, root / "cifar10" / TORCHVISION):
        batches = sorted(folder.glob("*_batch*")) if folder.name == TORCHVISION else []
        if batches:
            return tuple(batches)
    raise DataNotFoundError(f"cifar10: {root} does not hold it; {HINT}")


def load(root: Path | None) -> Source:
    """Read and decode CIFAR-10 (some five seconds).

    Raises:
        DataNotFoundError: the root does not hold it.
        DamagedFileError: a file is truncated, foreign or fails its checksum.
    """
    files = locate(root)
    if files[0].suffix != ".parquet":
        folder = files[0].parent
        return Source(_torchvision(folder, is_train=True), _torchvision(folder, is_train=False))
    train = [file for file in files if file.name.startswith("train")]
    test = [file for file in files if file.name.startswith("test")]
    return Source(
        read_images(train, CHANNELS, SIZE, CLASSES), read_images(test, CHANNELS, SIZE, CLASSES)
    )


def _torchvision(folder: Path, is_train: bool) -> Split:
    # The batches are pickles; torchvision opens them only after their MD5 matched.
    from torchvision.datasets import CIFAR10

    try:
        data = CIFAR10(str(folder.parent), train=is_train, download=False)
    except (RuntimeError, OSError):
        raise DamagedFileError(
            f"cifar10: {folder} fails torchvision's checksums; delete it, then {HINT}"
        ) from None
    images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
    return Split(images, torch.tensor(data.targets), torch.arange(len(images)))


DATASETS.register(
    DatasetInfo(
        name="cifar10",
        title="CIFAR-10",
        classes=CLASSES,
        channels=CHANNELS,
        size=SIZE,
        # Of the code of Mukhoti et al., which MbLS, FeDLaS and AdaFocal share; the deviations in
        # TST's and BalCAL's are others (.247, .243, .261).
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        padding=4,
        flip=True,
        load=load,
        locate=locate,
        split=split,
        hint=HINT,
        # Over-fitted on purpose, to be as miscalibrated as a large network on all of the data.
        quick=Quick(
            title="over-fitted on 30 % of the images, without augmentation",
            settings={
                "data": {"train_fraction": 0.3},
                "network": {
                    "backbone": "small_cnn",
                    "epochs": 30,
                    "augment": "none",
                    "weight_decay": 1e-4,
                },
                "head": {"augment": "none"},
            },
            backbones=("small_cnn",),
        ),
    ),
)
