"""The sources of CIFAR-10 and CIFAR-100: Parquet, torchvision's folder, the binary archive."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tune_calib.data.base import Source, Split
from tune_calib.data.decode import Format
from tune_calib.data.find import require_files, unpacked
from tune_calib.data.layouts import Layouts
from tune_calib.errors import DamagedFileError
from tune_calib.spec.datasets import Quick

CHANNELS, SIZE = 3, 32


def over_fitted(epochs: int) -> Quick:
    """Return the cheapest setting in the papers' regime on two cores (docs/pages/recipes.md).

    The network is trained on a twentieth of the training split, fits it wholly, and is
    over-confident by far more than 5 points.
    """
    return Quick(
        title="over-fitted on a twentieth of the training split, without augmentation",
        settings={
            "data": {"train_fraction": 0.05},
            "network": {
                "backbone": "small_vgg",
                "epochs": epochs,
                "batch_size": 32,
                "lr": 0.05,
                "schedule": "one_cycle",
                "warmup": 0.2,
                "augment": "none",
            },
            # Longer, a head on images that the network knows by heart grows over-confident.
            "head": {"augment": "none", "epochs": 20, "batch_size": 32},
        },
        backbones=("small_vgg",),
    )


@dataclass(frozen=True)
class Cifar:
    """The files of CIFAR-10 or CIFAR-100.

    Attributes:
        name: of the data set.
        torchvision: class of torchvision that reads ``batches``.
        batches: folder that torchvision makes; its files are pickles.
        binary: folder of the official binary archive, with the files ``train`` and ``test``.
        label_bytes: bytes before an image in a binary file; the last one is its class.
    """

    name: str
    torchvision: str
    batches: str
    binary: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: int
    label_bytes: int

    @property
    def hint(self) -> str:
        """Return how to get the data."""
        return (
            "give `data_root` a folder with train.parquet and test.parquet in the Hugging Face "
            f"layout, the root of torchvision.datasets.{self.torchvision}(root, download=True), "
            f"or that of the unpacked binary archive ({self.binary})"
        )

    @property
    def layouts(self) -> Layouts:
        """Return the layouts in their order: torchvision's folder before the binary archive."""
        pixels = Format(CHANNELS, SIZE)
        return Layouts(self.name, self.classes, self.hint, pixels, self._find, self._read)

    def _find(self, root: Path) -> tuple[Path, ...]:
        if batches := unpacked(self.name, root, self.batches):
            return tuple(sorted(batches.glob("*")))
        if binary := unpacked(self.name, root, self.binary):
            return require_files([binary / name for name in (*self.train, *self.test)], self.hint)
        return ()

    def _read(self, files: tuple[Path, ...], format_: Format) -> Source:
        del format_  # pixels as they are, all of one size
        folder = files[0].parent
        if files[0].suffix == ".bin":
            return Source(*(self._binary(folder, names) for names in (self.train, self.test)))
        return Source(*(self._batches(folder.parent, is_train) for is_train in (True, False)))

    def _batches(self, folder: Path, is_train: bool) -> Split:
        # The batches are pickles; torchvision opens them only after their MD5 matched.
        from torchvision import datasets

        try:
            data = getattr(datasets, self.torchvision)(str(folder), train=is_train, download=False)
        except (RuntimeError, OSError):
            raise DamagedFileError(
                f"{self.name}: {folder / self.batches} fails torchvision's checksums; delete it, "
                f"then {self.hint}"
            ) from None
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        return Split(images, torch.tensor(data.targets), torch.arange(len(images)))

    def _binary(self, folder: Path, names: tuple[str, ...]) -> Split:
        rows = np.concatenate([self._rows(folder / name) for name in names])
        labels = torch.from_numpy(rows[:, self.label_bytes - 1].astype(np.int64))
        images = torch.from_numpy(rows[:, self.label_bytes :].reshape(-1, CHANNELS, SIZE, SIZE))
        return Split(images.contiguous(), labels, torch.arange(len(rows)))

    def _rows(self, file: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """Return label bytes and pixels of each image of one binary file."""
        width = self.label_bytes + CHANNELS * SIZE * SIZE
        content = np.fromfile(file, np.uint8)
        if len(content) == 0 or len(content) % width:
            raise DamagedFileError(
                f"{file} has {len(content):,} bytes, no multiple of {width:,}; download it again"
            )
        rows = content.reshape(-1, width)
        largest = int(rows[:, self.label_bytes - 1].max())
        if largest >= self.classes:
            raise DamagedFileError(
                f"{file} holds label {largest}, expected 0..{self.classes - 1}; is it another "
                "data set?"
            )
        return rows
