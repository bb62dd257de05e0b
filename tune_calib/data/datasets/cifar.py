"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32x32.

Hugging Face and torchvision store them in different orders, so the published split indices select
the published images only from torchvision's folder; from Parquet, an equally random split.
"""

from functools import partial
from pathlib import Path

import torch

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.decode import Format
from tune_calib.data.layouts import Layouts, find_unpacked
from tune_calib.errors import DamagedFileError
from tune_calib.spec.datasets import DATASETS, Quick

# The superclass of each class of CIFAR-100, as in the files; torchvision does not read it.
COARSE = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11,
    6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5,
    5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13,
    16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)  # fmt: skip


def _find(name: str, folder: str, root: Path) -> tuple[Path, ...]:
    batches = find_unpacked(name, root, folder)
    return () if batches is None else tuple(sorted(batches.glob("*")))


def _read(kind: str, hint: str, files: tuple[Path, ...], _: Format) -> Source:
    # The batches are pickles, which torchvision opens only if their MD5 matches.
    from torchvision import datasets

    root, parts = files[0].parent.parent, []
    for is_train in (True, False):
        try:
            data = getattr(datasets, kind)(str(root), is_train)
        except (RuntimeError, OSError):
            raise DamagedFileError(
                f"{files[0].parent} does not match torchvision's checksums; delete it, then {hint}"
            ) from None
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        parts.append(Split(images, torch.tensor(data.targets), torch.arange(len(images))))
    return Source(*parts)


def over_fitted(epochs: int) -> Quick:
    """Return the cheapest setting with over-confident networks (docs/pages/recipes.md)."""
    return Quick(
        title="over-fitted on a twentieth of the training split, without augmentation",
        settings={
            "data": {"train_fraction": 0.05},
            "network": {
                "backbone": "small_vgg", "epochs": epochs, "batch_size": 32, "lr": 0.05,
                "schedule": "one_cycle", "warmup": 0.2, "augment": "none",
            },
            # With more epochs, a head on memorised images becomes over-confident.
            "head": {"augment": "none", "epochs": 20, "batch_size": 32},
        },
        backbones=("small_vgg",),
    )  # fmt: skip


for _title, _classes, _folder, _epochs, _fields in (
    ("CIFAR-10", 10, "cifar-10-batches-py", 10, {"rules": rules.CIFAR10}),
    ("CIFAR-100", 100, "cifar-100-python", 16, {"rules": rules.CIFAR100, "coarse": COARSE}),
):
    _kind = f"CIFAR{_classes}"  # class of torchvision that reads the files of its folder
    _name = _kind.lower()
    _hint = (
        "set `data_root` to a folder with train.parquet and test.parquet in the Hugging Face "
        f"layout, or to the root of torchvision.datasets.{_kind}(root, download=True)"
    )
    _find_files, _read_files = partial(_find, _name, _folder), partial(_read, _kind, _hint)
    # Constants as in the code of Mukhoti et al., also for CIFAR-100. (For its test images their
    # code uses those of ImageNet: `data.test_norm: legacy_imagenet`.)
    _info = Layouts(_name, _classes, _hint, Format(3, 32), _find_files, _read_files).record(
        _title, "cifar10", padding=4, flip=True, published=(50_000, 10_000),
        quick=over_fitted(_epochs), **_fields,
    )  # fmt: skip
    DATASETS.register(_info)
