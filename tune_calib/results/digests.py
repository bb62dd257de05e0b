"""Digests of a folder of results and of the program, which show whether either has changed."""

import hashlib
import os
import sys
from operator import attrgetter
from pathlib import Path

from tune_calib.paths import AnyPath, checksum_of
from tune_calib.results.manifests import ReportRecord
from tune_calib.spec import plugins
from tune_calib.spec.names import CRASHES, JOURNAL, PROGRESS

# Derived from the results, or artifacts, whose names depend on their content.
_NOT_FOLDERS = {"store", "tables", "figures", "profiles"}
# Every command that opens a study extends it, and a report reads what the driver derived from it.
_NOT_FILES = {"report.html", "report.txt", ReportRecord.file_name, PROGRESS, CRASHES, JOURNAL}

_ROOT = Path(__file__).parents[2]


def digest_folder(folder: AnyPath) -> dict[str, str] | None:
    """Return the SHA-256 of each file of results by relative name; None if that is not possible."""
    if not isinstance(folder, Path):  # a remote folder would have to be read completely
        return None
    digests: dict[str, str] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _counts(name, _NOT_FOLDERS))
        if any((Path(parent) / name).is_symlink() for name in folders):
            return None
        paths = [Path(parent) / name for name in sorted(names) if _counts(name, _NOT_FILES)]
        digests |= {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}
    return digests


def _counts(name: str, others: set[str]) -> bool:
    return not name.startswith(".") and not name.endswith(".lock") and name not in others


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        return checksum_of(path)
    except (OSError, ValueError):  # ValueError: the name may be invalid
        return ""


def digest_texts(*texts: str) -> str:
    """Return the SHA-256 of some texts, each separated from the next."""
    return hashlib.sha256("".join(f"{len(text)} {text}\n" for text in texts).encode()).hexdigest()


def digest_program() -> str:
    """Return the SHA-256 of the states of the program's files, its libraries and plug-ins."""
    # The names of these folders contain every version. Ray and setuptools add folders of their own
    # to the path when they are imported.
    libraries: set[str] = set()
    for folder in sys.path:
        if folder.endswith("-packages"):
            libraries.update(path.name for path in Path(folder).glob("*.dist-info"))
    files = []
    for package in plugins.PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            # Examples of results do not affect a report.
            if path.suffix not in (".parquet", ".pyc") and path.is_file():
                files.append(f"{path} {path.stat().st_mtime_ns}")
    used = sorted(map(attrgetter("content"), plugins.in_use()))
    return digest_texts(sys.version, *files, *sorted(libraries), *used)
