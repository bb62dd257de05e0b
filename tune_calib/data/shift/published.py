"""Published corruptions: CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, ICLR 2019).

A folder of ``KIND.npy``, (5 N, 32, 32, 3) uint8, severity after severity, and ``labels.npy``. Of
the images those are taken whose place is in the test split, so that none of them chose anything.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.corruptions import SEVERITIES
from tune_calib.data.layouts import find_unpacked
from tune_calib.data.shift.foreign import Chunks, Part, ShiftSet
from tune_calib.errors import DamagedFileError, DataNotFoundError, UserError
from tune_calib.paths import content_digest
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.names import CORRUPTION_KINDS
from tune_calib.text import nearest

LABELS = "labels.npy"
_FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


def folder_of(info: DatasetInfo, root: Path | None) -> Path | None:
    """Return the folder of the published files of a data set below a root, or None."""
    name = _FOLDERS.get(info.name)
    return find_unpacked(info.name, root, name) if name is not None and root is not None else None


@dataclass(frozen=True, eq=False)
class Published:
    """Published corruptions, whose images stay on disk; ``labels`` are (5 N,), int64."""

    folder: Path
    info: DatasetInfo
    kinds: tuple[str, ...]
    labels: Tensor

    @classmethod
    def open(cls, folder: Path, info: DatasetInfo) -> "Published":
        """Find the files and check everything except the pixels."""
        files = sorted(file for file in folder.glob("*.npy") if file.name != LABELS)
        if not files or not (folder / LABELS).is_file():
            raise DataNotFoundError(
                f"{folder} holds no shift set; it needs {LABELS} and a file of each corruption"
            )
        labels = torch.from_numpy(_loaded(folder / LABELS).astype(np.int64))
        stored = len(info.relabel) if info.relabel else info.classes
        if labels.ndim != 1 or int(labels.min()) < 0 or int(labels.max()) != stored - 1:
            raise DamagedFileError(
                f"{folder / LABELS} does not have the {stored} classes of {info.name}; is it of "
                "another data set?"
            )
        found = cls(folder, info, tuple(file.stem for file in files), labels)
        for kind in found.kinds:
            found._pixels(kind)
        return found

    def chosen(self, kinds: Sequence[str]) -> list[str]:
        """Return the named kinds, or those of the benchmark without its extra ones."""
        for kind in kinds:
            if kind not in self.kinds:
                raise UserError(f"{self.folder} has no {kind}.npy{nearest(kind, list(self.kinds))}")
        return list(kinds) or [kind for kind in self.kinds if kind in CORRUPTION_KINDS]

    def shift_set(self, kind: str, test: Callable[[], Split]) -> ShiftSet:
        """Return the test images of a kind at every severity."""

        def parts() -> list[Part]:
            split = test()
            places = self._positions(split)
            size = len(self.labels) // len(SEVERITIES)
            return [
                Part(str(level), split.labels, self._chunks(kind, (level - 1) * size + places))
                for level in SEVERITIES
            ]

        # Another copy or size of the set has other labels or images.
        files = [self.folder / LABELS, self.folder / f"{kind}.npy"]
        return ShiftSet(f"corrupt/{kind}", content_digest(files)[:16], parts)

    def _positions(self, test: Split) -> Tensor:
        """Return the positions of the test split's images within a severity."""
        size = len(self.labels) // len(SEVERITIES)
        labels = self.labels[:size]
        if self.info.relabel is not None:
            labels = torch.tensor(self.info.relabel)[labels]
        places = test.indices.cpu()
        is_whole = int(places.max()) < size
        if not is_whole or not torch.equal(labels[places], test.labels.cpu()):
            raise UserError(
                f"{self.folder / LABELS} does not have the labels of the test images of "
                f"{self.info.name} in their order; take the data set and the files as published"
            )
        return places

    def _chunks(self, kind: str, rows: Tensor) -> Chunks:
        def chunks(size: int, device: torch.device) -> Iterator[Tensor]:
            pixels = self._pixels(kind)
            for some in rows.split(size):
                images = torch.from_numpy(np.array(pixels[some.numpy()]))
                yield images.permute(0, 3, 1, 2).contiguous().to(device)

        return chunks

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
