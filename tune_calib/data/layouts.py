"""File layouts of data sets: Parquet in the Hugging Face layout, or the original archive."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.decode import Format
from tune_calib.data.huggingface import Columns, find_parts, lazy_images
from tune_calib.errors import DamagedFileError, DataNotFoundError, reading
from tune_calib.spec.datasets import NORMS, DatasetInfo


def locate_folder(name: str, root: Path | None, hint: str) -> Path:
    if root is None:
        raise DataNotFoundError(f"{name} is not embedded: {hint}")
    if not root.is_dir():
        raise DataNotFoundError(f"{name}: {root} is not a folder; {hint}")
    return root


def find_unpacked(name: str, root: Path, folder: str) -> Path | None:
    paths = (root, root / folder, root / name / folder)
    return next((path for path in paths if path.name == folder and path.is_dir()), None)


def locate_files(files: tuple[Path, ...], hint: str) -> tuple[Path, ...]:
    for file in files:
        if not file.is_file():
            raise DataNotFoundError(f"{file} does not exist; {hint}")
    return files


def read_fields(file: Path, count: int, separator: str | None = " ") -> list[list[str]]:
    """Split the lines of a text file into ``count`` fields; the last field takes the rest."""
    with reading(file, "cannot be read", "unpack it again"):
        lines = file.read_text(encoding="utf-8").splitlines()
        rows = [line.split(separator, count - 1) for line in lines if line.strip()]
        if min(map(len, rows), default=0) < count:
            raise ValueError(f"a line does not have {count} fields")
    return rows


def require_classes(problem: str, split: Split, classes: int) -> None:
    counts = torch.bincount(split.labels, minlength=classes)
    if int(counts.min()) == 0:
        raise DamagedFileError(
            f"{problem} image of class {int(counts.argmin())} (of {classes}); is it complete, and "
            "are the classes numbered from 0 without gaps?"
        )


@dataclass(frozen=True)
class Layouts:
    name: str  # registry key of the data set
    classes: int  # number of classes
    hint: str  # how to get the data
    format: Format  # format of its images
    # Returns the files of the archive, if it exists: in ``folder``, or else below the root.
    find: Callable[[Path], tuple[Path, ...]]
    read: Callable[[tuple[Path, ...], Format], Source]  # reads the data set from these files
    folder: str = ""  # name of the unpacked archive
    parts: tuple[str, str] = ("train", "test")  # names of the parts in Parquet files

    def record(self, title: str, norm: str, **fields: Any) -> DatasetInfo:
        mean, std = NORMS[norm]
        properties: dict[str, Any] = {"size": self.format.size, "padding": 0, "hint": self.hint}
        properties |= {"load": self.load, "locate": self.locate, "split": rules.mukhoti}
        if self.format.resize:
            properties |= {"stored": self.format.size, "load_at": self.load_at}
        properties |= {"mean": mean, "std": std, **fields}
        return DatasetInfo(
            self.name, title, classes=self.classes, channels=self.format.channels, **properties
        )

    def locate(self, root: Path | None) -> tuple[Path, ...]:
        folder = locate_folder(self.name, root, self.hint)
        if parts := find_parts(self.name, folder, self.hint, self.parts):
            return (*parts[0], *parts[1])
        archive = find_unpacked(self.name, folder, self.folder) if self.folder else folder
        if archive is not None and (files := self.find(archive)):
            return files
        raise DataNotFoundError(f"{self.name}: not found in {root}; {self.hint}")

    def load(self, root: Path | None) -> Source:
        files, format_ = self.locate(root), replace(self.format, as_stored=True)
        if files[0].suffix == ".parquet":
            parts = find_parts(self.name, files[0].parent, self.hint, self.parts)
            columns = replace(Columns().settled(files[0]), agree=False)  # the numbers are known
            source = Source(*(lazy_images(part, format_, self.classes, columns) for part in parts))
        else:
            source = self.read(files, format_)
        for name, split in (("training", source.train), ("test", source.test)):
            require_classes(f"{files[0].parent} has no {name}", split, self.classes)
        return source

    def load_at(self, root: Path | None, stored: int) -> Source:
        return replace(self, format=replace(self.format, size=stored)).load(root)
