"""Digests of files and of the program, which show whether they have changed."""

import sys
from operator import attrgetter
from pathlib import Path

from tune_calib.files.hashes import checksum_of, hash_texts
from tune_calib.spec import plugins

_ROOT = Path(__file__).parents[2]


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        return checksum_of(path)
    except (OSError, ValueError):  # ValueError: the name may be invalid
        return ""


def digest_texts(*texts: str) -> str:
    """Return the SHA-256 of some texts, each separated from the next."""
    return hash_texts(texts)


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
