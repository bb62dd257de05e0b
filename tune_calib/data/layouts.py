"""File layouts of data sets: Parquet in the Hugging Face layout, or the original archive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tune_calib.data import rules
from tune_calib.data.base import Source
from tune_calib.data.decode import Format
from tune_calib.data.huggingface import Columns, find_parts, lazy_images
from tune_calib.errors import DamagedFileError, DataNotFoundError, refuse_unreadable
from tune_calib.spec.datasets import NORMS, DatasetInfo


def require_folder(name: str, root: Path | None, hint: str) -> Path:
    """Return the root of a data set that is not embedded; raise unless it is a folder."""
    if root is None:
        raise DataNotFoundError(f"{name} is not embedded: {hint}")
    if not root.is_dir():
        raise DataNotFoundError(f"{name}: {root} is not a folder; {hint}")
    return root


def find_unpacked(name: str, root: Path, folder: str) -> Path | None:
    """Return an unpacked folder, which is the root or below it, or None if there is none."""
    paths = (root, root / folder, root / name / folder)
    return next((each for each in paths if each.name == folder and each.is_dir()), None)


def require_files(files: Sequence[Path], hint: str) -> tuple[Path, ...]:
    """Return the files of an archive; raise if one does not exist."""
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None:
        raise DataNotFoundError(f"{absent} does not exist; {hint}")
    return tuple(files)


def read_fields(file: Path, count: int, separator: str | None = " ") -> list[list[str]]:
    """Split the lines of a text file into ``count`` fields; the last field takes the rest."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except PermissionError as error:
        raise refuse_unreadable(error, file) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{file} cannot be read ({error}); unpack it again") from None
    found = [line.split(separator, count - 1) for line in lines if line.strip()]
    wrong = next((number for number, each in enumerate(found, 1) if len(each) < count), None)
    if wrong is not None or not found:
        raise DamagedFileError(
            f"{file}: line {wrong or 1} does not have {count} fields; unpack it again"
        )
    return found


@dataclass(frozen=True)
class Layouts:
    """The layouts that a data set can have below a root."""

    name: str  # registry key of the data set
    classes: int  # number of classes
    hint: str  # how to get the data
    format: Format  # format of its images
    find: Callable[[Path], tuple[Path, ...]]  # returns the files of the archive, if it exists
    read: Callable[[tuple[Path, ...], Format], Source]  # reads the data set from these files
    parts: tuple[str, str] = ("train", "test")  # names of the parts in Parquet files

    def record(self, title: str, norm: str, **fields: Any) -> DatasetInfo:
        """Return the record of the data set, with constants of ``NORMS`` and further fields."""
        known: dict[str, Any] = {"size": self.format.size, "padding": 0, "split": rules.mukhoti}
        known |= {"load": self.load, "locate": self.locate, "hint": self.hint}
        if self.format.resize:
            known |= {"stored": self.format.size, "load_at": self.load_at}
        known |= {"mean": NORMS[norm][0], "std": NORMS[norm][1], **fields}
        return DatasetInfo(self.name, title, self.classes, self.format.channels, **known)

    def locate(self, root: Path | None) -> tuple[Path, ...]:
        """Return the files below a root."""
        folder = require_folder(self.name, root, self.hint)
        if found := find_parts(self.name, folder, self.hint, self.parts):
            return (*found[0], *found[1])
        if files := self.find(folder):
            return files
        raise DataNotFoundError(f"{self.name}: not found in {root}; {self.hint}")

    def load(self, root: Path | None) -> Source:
        """Read the data set; images are decoded when they are used, where possible."""
        files, format_ = self.locate(root), replace(self.format, as_stored=True)
        if files[0].suffix == ".parquet":
            parts = find_parts(self.name, files[0].parent, self.hint, self.parts)
            columns = replace(Columns().settled(files[0]), agree=False)  # the numbers are known
            train, test = (lazy_images(part, format_, self.classes, columns) for part in parts)
            source = Source(train, test)
        else:
            source = self.read(files, format_)
        for name, split in (("training", source.train), ("test", source.test)):
            counts = torch.bincount(split.labels, minlength=self.classes)
            if int(counts.min()) == 0:
                raise DamagedFileError(
                    f"{files[0].parent} has no {name} image of class {int(counts.argmin())} (of "
                    f"{self.classes}); is it complete?"
                )
        return source

    def load_at(self, root: Path | None, stored: int) -> Source:
        """Read the data set with a different height and width of the images."""
        return replace(self, format=replace(self.format, size=stored)).load(root)
