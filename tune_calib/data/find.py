"""What loaders of data sets share: roots, folders and lists that archives hold."""

from collections.abc import Sequence
from pathlib import Path

from tune_calib.errors import DamagedFileError, DataNotFoundError


def require_folder(name: str, root: Path | None, hint: str) -> Path:
    """Return the root of a data set that is not embedded.

    Raises:
        DataNotFoundError: it is not given, or no folder.
    """
    if root is None:
        raise DataNotFoundError(f"{name} is not embedded: {hint}")
    if not root.is_dir():
        raise DataNotFoundError(f"{name}: {root} is not a folder; {hint}")
    return root


def unpacked(name: str, root: Path, folder: str) -> Path | None:
    """Return an unpacked folder: the root itself, or below it; None if it is not there."""
    places = (root, root / folder, root / name / folder)
    return next((each for each in places if each.name == folder and each.is_dir()), None)


def require_files(files: Sequence[Path], hint: str) -> tuple[Path, ...]:
    """Return the files of an archive, all of which must exist."""
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None:
        raise DataNotFoundError(f"{absent} is not there; {hint}")
    return tuple(files)


def fields_of(file: Path, count: int, separator: str | None = " ") -> list[list[str]]:
    """Return the lines of a list cut into so many fields; the last takes the rest.

    Raises:
        DamagedFileError: the file cannot be read as text, or a line has fewer fields.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{file} cannot be read ({error}); unpack it again") from None
    found = [line.split(separator, count - 1) for line in lines if line.strip()]
    wrong = next((number for number, each in enumerate(found, 1) if len(each) < count), None)
    if wrong is not None or not found:
        raise DamagedFileError(
            f"{file}: line {wrong or 1} does not have {count} fields; unpack it again"
        )
    return found
