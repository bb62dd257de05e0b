"""Published shift sets: CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, ICLR 2019).

A folder of ``KIND.npy``, (5 N, 32, 32, 3) uint8, severity after severity, and ``labels.npy``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tune_calib.data.base import DatasetInfo, Split
from tune_calib.data.corruptions import SEVERITIES
from tune_calib.errors import DamagedFileError, DataNotFoundError, UserError

LABELS = "labels.npy"


@dataclass(frozen=True, eq=False)
class ShiftSet:
    """A shift set of a data set; its pictures stay on disk.

    Attributes:
        folder: where it lies.
        info: the data set.
        kinds: names of its corruptions, sorted.
        labels: (5 N,), int64, as a network has them.
    """

    folder: Path
    info: DatasetInfo
    kinds: tuple[str, ...]
    labels: torch.Tensor

    @classmethod
    def open(cls, folder: Path, info: DatasetInfo) -> "ShiftSet":
        """Find the files and look at all that is not pixels.

        Raises:
            DataNotFoundError: there is no such set.
            DamagedFileError: a file is damaged, or of another data set.
            UserError: some of the pictures were used to choose.
        """
        files = sorted(file for file in folder.glob("*.npy") if file.name != LABELS)
        if not files or not (folder / LABELS).is_file():
            raise DataNotFoundError(
                f"{folder} holds no shift set; name the unpacked folder CIFAR-10-C or CIFAR-100-C, "
                f"with {LABELS} and a file of each corruption"
            )
        if info.rule in ("whole", "val_is_test") or info.holdout_shares is not None:
            how = f"split={info.rule}" if info.holdout_shares is None else "holdout=test"
            raise UserError(
                f"{folder}: with data.{how} select and calib are test images, which "
                "are in the shift set too; measure it on networks of another rule"
            )
        labels = torch.from_numpy(_loaded(folder / LABELS).astype(np.int64))
        stored = len(info.relabel) if info.relabel else info.classes
        if labels.ndim != 1 or int(labels.min()) < 0 or int(labels.max()) != stored - 1:
            raise DamagedFileError(
                f"{folder / LABELS} is not of the {stored} classes of {info.name}; is it of "
                "another data set?"
            )
        if info.relabel is not None:
            labels = torch.tensor(info.relabel)[labels]
        found = cls(folder, info, tuple(file.stem for file in files), labels)
        for kind in found.kinds:
            found._pixels(kind)
        return found

    def splits(self) -> Iterator[tuple[str, int, Split]]:
        """Kind, severity and images of each part."""
        size = len(self.labels) // len(SEVERITIES)
        for kind in self.kinds:
            pixels = self._pixels(kind)
            for severity in SEVERITIES:
                rows = slice((severity - 1) * size, severity * size)
                images = torch.from_numpy(np.array(pixels[rows])).permute(0, 3, 1, 2).contiguous()
                yield kind, severity, Split(images, self.labels[rows], torch.arange(size))

    def _pixels(self, kind: str) -> NDArray[Any]:
        file = self.folder / f"{kind}.npy"
        pixels = _loaded(file)
        expected = (len(self.labels), self.info.size, self.info.size, self.info.channels)
        if pixels.shape != expected or pixels.dtype != np.uint8 or len(self.labels) % 5:
            raise DamagedFileError(
                f"{file} is {pixels.dtype} {pixels.shape}, expected uint8 {expected}, five "
                "severities of one size; download it again"
            )
        return pixels


def _loaded(file: Path) -> NDArray[Any]:
    try:
        # Never a pickle, which runs what is in it.
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DamagedFileError(
            f"{file} is no whole file of NumPy ({reason}); download it again"
        ) from None
    return array
