"""Where the files of a data set lie: Parquet of Hugging Face, else its own archive."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tune_calib.data import rules
from tune_calib.data.base import Source
from tune_calib.data.decode import Format
from tune_calib.data.find import require_folder
from tune_calib.data.huggingface import find_parts, lazy_images
from tune_calib.errors import DamagedFileError, DataNotFoundError
from tune_calib.spec.datasets import NORMS, DatasetInfo


@dataclass(frozen=True)
class Layouts:
    """How a data set is found below a root, and read.

    Attributes:
        name: of the data set.
        classes: number of classes.
        hint: how to get the data.
        format: what its images become.
        find: gives the files below a root that pixels and labels depend on; none: no archive.
        read: the data set from these files.
        parts: how Parquet files call the training part and the test part.
    """

    name: str
    classes: int
    hint: str
    format: Format
    find: Callable[[Path], tuple[Path, ...]]
    read: Callable[[tuple[Path, ...], Format], Source]
    parts: tuple[str, str] = ("train", "test")

    def record(self, title: str, norm: str, **fields: Any) -> DatasetInfo:
        """Return the record of the data set, with constants of ``NORMS`` and further fields."""
        mean, std = NORMS[norm]
        known = {"size": self.format.size, "padding": 0, "split": rules.mukhoti}
        if self.format.resize:
            known |= {"stored": self.format.size, "load_at": self.load_at}
        return DatasetInfo(
            name=self.name,
            title=title,
            classes=self.classes,
            channels=self.format.channels,
            mean=mean,
            std=std,
            load=self.load,
            locate=self.locate,
            hint=self.hint,
            **{**known, **fields},
        )

    def locate(self, root: Path | None) -> tuple[Path, ...]:
        """Find the files below a root.

        Raises:
            DataNotFoundError: they are not there, or in part only.
        """
        folder = require_folder(self.name, root, self.hint)
        if found := find_parts(self.name, folder, self.hint, self.parts):
            return (*found[0], *found[1])
        if files := self.find(folder):
            return files
        raise DataNotFoundError(f"{self.name}: {root} does not hold it; {self.hint}")

    def load(self, root: Path | None) -> Source:
        """Read the data set; what need not be in memory is decoded when it is asked for.

        Raises:
            DataNotFoundError: the root does not hold it.
            DamagedFileError: a file is damaged or foreign, or a class is missing.
        """
        files = self.locate(root)
        if files[0].suffix == ".parquet":
            parts = find_parts(self.name, files[0].parent, self.hint, self.parts)
            source = Source(*(lazy_images(part, self.format, self.classes) for part in parts))
        else:
            source = self.read(files, self.format)
        for name, split in (("training", source.train), ("test", source.test)):
            counts = torch.bincount(split.labels, minlength=self.classes)
            if int(counts.min()) == 0:
                raise DamagedFileError(
                    f"{files[0].parent} has no {name} image of class {int(counts.argmin())} (of "
                    f"{self.classes}); is it whole?"
                )
        return source

    def load_at(self, root: Path | None, stored: int) -> Source:
        """Read the data set with images of another height and width."""
        return replace(self, format=replace(self.format, size=stored)).load(root)
