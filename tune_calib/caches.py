"""The user's cache folder, and in it what the program knows of itself.

To list what is registered, or to refuse a name that is not, would import torch for seconds, and
tells the same until a source changes. So it is worked out once and kept. Nobody maintains a second
list, and a file that is damaged, old or cannot be written costs time only.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_SETTLED_NS = 2 * 10**9

PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")
"""Packages of the program, on whose sources rests what is remembered."""


def cache_folder() -> Path:
    """Where this machine keeps copies of what lies remote: ``TUNE_CALIB_CACHE``, or in the home."""
    given = os.environ.get("TUNE_CALIB_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "tune-calib"


def content_digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the names and the contents of some files, in their order.

    It is kept in the user's cache folder by where the files lie, their sizes and the times of their
    last change. No copy and no program sets these times back, unlike those of modification.

    Args:
        files: at least one.

    Raises:
        OSError: a file cannot be read.
    """
    stamps = _stamps(files)
    path = None
    with contextlib.suppress(RuntimeError):  # there is no home folder
        path = cache_folder() / "digests" / _digest(repr(stamps))
    if path is not None:
        with contextlib.suppress(OSError, ValueError):
            digest = path.read_text("utf-8")
            if re.fullmatch("[0-9a-f]{64}", digest):
                return digest
    whole = hashlib.sha256()
    # Names of classes are those of folders; where all of them lie is of no account.
    base = os.path.commonpath([each.absolute().parent for each in files])
    for each in files:
        with each.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        name = each.absolute().relative_to(base).as_posix()
        whole.update(f"{content} {name!a}\n".encode())
    digest = whole.hexdigest()
    # Two changes within the resolution of the clock have one time.
    is_settled = all(time.time_ns() - stamp[-1] > _SETTLED_NS for stamp in stamps)
    if path is not None and is_settled and _stamps(files) == stamps:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
            temporary.write_text(digest, "utf-8")
            temporary.replace(path)
    return digest


def _stamps(files: Sequence[Path]) -> list[tuple[str, int, int, int, int, int]]:
    """Return path, device, inode, size, modification and change of files, the change last."""
    told = [(str(file.absolute()), file.stat()) for file in files]
    return [
        (path, each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for path, each in told
    ]


def remembered(name: str, work: Callable[[], Any]) -> Any:
    """What the program knows of itself, worked out at most once for a version of its sources.

    Args:
        name: of what is known, e.g. ``names of tune_calib.methods``.
        work: works it out, from the sources and the installed packages alone.

    Returns:
        As JSON gives it back, also where it was worked out just now.
    """
    path = None
    with contextlib.suppress(RuntimeError):  # who has no home
        path = cache_folder() / "program" / f"{_digest(repr(_folders()))}.json"
    known = _known(path)
    if name not in known:
        found = json.loads(json.dumps(work()))
        # What was worked out for this would itself ask, and have written more since.
        known = {**_known(path), name: found}
        if path is not None:
            _write(path, known)
    return known[name]


def _known(path: Path | None) -> dict[str, Any]:
    """What is known of these sources; nothing if the file is of others, damaged or not there."""
    if path is None:
        return {}
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=1)
def _read(path: Path, *version: int) -> dict[str, Any]:
    del version  # tells one file of this name from the next
    sources, digest, text = path.read_text("utf-8").split("\n", 2)
    if SOURCES is None or sources != SOURCES or digest != _digest(text):
        return {}
    known: dict[str, Any] = json.loads(text)
    return known


def _write(path: Path, known: dict[str, Any]) -> None:
    # A process that has run since before a source changed knows what was, not what is.
    if not are_sources_current():
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    text = json.dumps(known)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f"{SOURCES}\n{_digest(text)}\n{text}", "utf-8")
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def are_sources_current() -> bool:
    """Whether the sources are still those that this process has loaded or will load."""
    return SOURCES is not None and _sources() == SOURCES


def _sources() -> str | None:
    """Digest of paths, sizes and times of the program's sources, and of what is installed.

    Returns:
        None where they are no files, or one vanishes: then nothing is remembered.
    """
    try:
        files = [entry for folder in _folders() for entry in _files(folder)]
        # Installing a package, or another version of it, changes the folder of packages.
        sites = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
        installed = [(path, os.stat(path).st_mtime_ns) for path in sites]
    except OSError:
        return None
    return _digest(repr((sys.version, files, installed)))


@cache
def _folders() -> list[str]:
    """Folders of the program's packages; nothing is imported for it."""
    specs = [find_spec(name) for name in PACKAGES]
    return [place for spec in specs if spec for place in spec.submodule_search_locations or ()]


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith((".", "__pycache__")):  # no sources, such as an editor's locks
                continue
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SOURCES = _sources()
"""The sources that this process has loaded or will load, as of its start."""
