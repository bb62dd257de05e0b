"""What a folder of results holds, and what the program is, by content: whether either changed.

What was made of both, a report or the word that all is done, holds as long as neither did.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tune_calib import LOADED_AT
from tune_calib.paths import AnyPath
from tune_calib.results.manifests import ReportRecord
from tune_calib.spec import plugins
from tune_calib.spec.names import CRASHES, JOURNAL, PROGRESS

PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")

# What is made of results, and artifacts, which have names of their content.
_NOT_FOLDERS = {"store", "tables", "figures", "profiles"}
# A study grows by each command that opens it, and a report reads what the driver made of it.
_NOT_FILES = {"report.html", "report.txt", ReportRecord.file_name, PROGRESS, CRASHES, JOURNAL}


def digest_folder(folder: AnyPath) -> dict[str, str] | None:
    """SHA-256 of every file of results below a folder, by relative name.

    Returns:
        None where that is not known: of a remote folder, which would have to be read whole, and
        of one that links to folders elsewhere.
    """
    if not isinstance(folder, Path):
        return None
    found: dict[str, str] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_told(name, _NOT_FOLDERS))
        if any((Path(parent) / name).is_symlink() for name in folders):
            return None
        paths = [Path(parent) / name for name in sorted(names) if _is_told(name, _NOT_FILES)]
        found |= {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}
    return found


def digest_file(path: Path) -> str:
    """SHA-256 of a file; empty where it cannot be read."""
    try:
        if not path.is_file():  # a pipe or a device might have no end
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):  # the name may be none
        return ""


def digest_texts(*texts: str) -> str:
    """SHA-256 of some texts, each told from the next."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}\n".encode())
    return digest.hexdigest()


def digest_program() -> str | None:
    """SHA-256 of all that turns results into numbers: the program, libraries, plug-ins in use.

    Returns:
        None where this process has loaded what is not there any more.
    """
    if not are_sources_current():
        return None
    # The names of these folders say every version. Ray and setuptools add folders of their own to
    # the path when they are imported.
    sites = [Path(place) for place in sys.path if place.endswith("-packages")]
    libraries = {path.name for site in sites for path in site.glob("*.dist-info")}
    used = sorted(plugin.content for plugin in plugins.in_use())
    return digest_texts(sys.version, _of_sources(), *sorted(libraries), *used)


def are_sources_current() -> bool:
    """Return whether no source of the program changed since this process loaded it."""
    return all(path.stat().st_mtime <= LOADED_AT for path in _sources())


def _is_told(name: str, others: set[str]) -> bool:
    return not name.startswith(".") and not name.endswith(".lock") and name not in others


@cache
def _of_sources() -> str:
    texts = [
        text for path in _sources() for text in (str(path.relative_to(_ROOT)), digest_file(path))
    ]
    return digest_texts(*texts)


_ROOT = Path(__file__).parents[2]


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        files = (path for path in (_ROOT / package).rglob("*") if path.is_file())
        # Examples of results are no part of what makes a report.
        yield from sorted(p for p in files if p.suffix not in (".parquet", ".pyc"))
