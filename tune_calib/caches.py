"""The user's cache folder, and in it the digests of data files."""

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

_SETTLED_NS = 2 * 10**9

LOADED_AT = time.time()
"""When this process loaded the program: a source of a later time is not what it runs."""


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
        path = cache_folder() / "digests" / hashlib.sha256(repr(stamps).encode()).hexdigest()
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
