"""Paths of results and artifacts: folders of this machine, or of an object store by URL.

A local folder is a ``pathlib.Path``. A URL that pyarrow or fsspec knows (``s3://bucket/prefix``,
``gs://``, ``abfs://`` ...) is a ``RemotePath`` with the methods of ``Path`` that are needed. Files
read from one are kept in the cache folder of this machine, which may be deleted at any time.
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa
from pyarrow import fs

from tune_calib.errors import WAY_OUT, RefusedError, UserError
from tune_calib.files.documents import checksum_of, hash_text, seal, unseal

READERS = 16
"""Number of files that are fetched in parallel, since an object store is slow to respond."""

_TEMPORARY = ".*.tmp"  # names of what is being written
_ABANDONED_S = 24 * 3600  # longer than any file or folder takes to be written


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder of an object store, by its URL; its errors are one-line ``UserError``."""

    url: str  # without a slash at the end

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        return RemotePath(self.url.rpartition("/")[0])

    def resolve(self) -> "RemotePath":
        """Return itself: a URL is absolute."""
        return self

    def exists(self) -> bool:
        return bool(self._info().type != fs.FileType.NotFound)

    def iterdir(self) -> Iterator["RemotePath"]:
        return (self / info.base_name for info in self._list())

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        first, _, rest = pattern.partition("/")
        for path in self.iterdir():
            if not fnmatchcase(path.name, first):
                continue
            if not rest:
                yield path
            # A name without a star is requested directly: listing a folder may take many requests.
            elif "*" in rest:
                yield from path.glob(rest)
            elif (path / rest).exists():
                yield path / rest

    def read_bytes(self) -> bytes:
        with self._connect("read") as (system, path), system.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write_bytes(self, content: bytes) -> None:
        with self._connect("write") as (system, path), system.open_output_stream(path) as stream:
            stream.write(content)

    def upload(self, source: Path) -> None:
        """Upload a file of this machine atomically."""
        with self._connect("write") as (system, path):
            fs.copy_files(str(source), path, fs.LocalFileSystem(), destination_filesystem=system)

    def download(self, target: Path) -> None:
        """Copy to a file of this machine atomically."""
        # Two requests a file; ``fs.copy_files`` needs three.
        with (
            self._connect("read") as (system, path),
            system.open_input_stream(path) as stream,
            replacing(target) as file,
        ):
            shutil.copyfileobj(stream, file, 2**20)

    def unlink(self) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(FileNotFoundError), self._connect("remove") as (system, path):
            system.delete_file(path)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError), self._connect("remove") as (system, path):
            system.delete_dir(path)

    def fetch(self, pattern: str) -> list[tuple["RemotePath", Path]]:
        """Return the matching files of this folder by name, each with its local copy."""
        if "*" in pattern:
            infos = [info for info in self._list() if fnmatchcase(info.base_name, pattern)]
        else:
            infos = [(self / pattern)._info()]

        def copy(info: fs.FileInfo) -> tuple[RemotePath, Path]:
            path = self / info.base_name
            # A rewritten file has another size or time, and so another copy.
            name = hash_text(f"{path} {info.size} {info.mtime_ns}")[:32]
            if not (target := cache_folder() / "files" / name).exists():
                path.download(target)
            return path, target

        with ThreadPoolExecutor(READERS) as pool:
            return sorted(pool.map(copy, (i for i in infos if i.type == fs.FileType.File)))

    def _info(self) -> fs.FileInfo:
        with self._connect("reach") as (system, path):
            return system.get_file_info(path)

    def _list(self) -> list[fs.FileInfo]:
        with self._connect("reach") as (system, path):
            infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(infos, key=lambda info: info.path)

    @contextlib.contextmanager
    def _connect(self, what: str) -> Iterator[tuple[fs.FileSystem, str]]:
        """Provide the file system and the path in it, and turn its errors into one line."""
        scheme, _, rest = self.url.partition("://")
        host, _, path = rest.partition("/")
        try:
            system, base = _file_system(scheme, host)
            if base:
                path = f"{base}/{path}"
            yield system, path
        # Every library that fsspec uses has its own errors.
        except Exception as error:
            if isinstance(error, FileNotFoundError) and what in ("read", "remove"):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"cannot {what} {self.url}: {reason}") from None


AnyPath = Path | RemotePath


def cache_folder() -> Path:
    """Return the folder of local copies: ``TUNE_CALIB_CACHE``, or a folder in the user's home."""
    folder = os.environ.get("TUNE_CALIB_CACHE")
    return expand_path(folder) if folder else Path.home() / ".cache" / "tune-calib"


def atomic_write(path: AnyPath, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, even after a crash.

    Raises:
        UserError: The disk is full or the folder cannot be written.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:  # all trials of a run write to this disk
        raise RefusedError(f"cannot write {path}: {error.strerror}; {WAY_OUT}") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` at the end, so that nobody reads an incomplete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(name_temporary(path.name))
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            # Before the rename: otherwise a crash of the machine may leave an empty file.
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def name_temporary(name: str) -> str:
    return f".{name}.{uuid.uuid4().hex}.tmp"


def is_temporary(path: AnyPath) -> bool:
    """Return whether a process began to write a file or folder, and perhaps was killed."""
    return fnmatchcase(path.name, _TEMPORARY)


@cache
def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder a day ago or earlier."""
    for path in folder.glob(_TEMPORARY):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def content_digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the names and contents of some files, in their order.

    It is cached by the paths, sizes and change times of the files. Unlike modification times, no
    copy and no program sets change times back.
    """
    stamps = []
    for file in files:
        stat = file.stat()
        stamps.append((str(file.absolute()), stat.st_ino, stat.st_size, stat.st_ctime_ns))
    path = cache_folder() / "digests" / hash_text(repr(stamps))
    with contextlib.suppress(OSError, UserError):  # e.g. it is damaged
        return str(unseal(path.read_bytes(), path)["digest"])
    # Folder names are class names; the path of their common parent is irrelevant.
    base = os.path.commonpath([file.absolute().parent for file in files])
    lines = []
    for file in files:
        name = file.absolute().relative_to(base).as_posix()
        lines.append(f"{checksum_of(file)} {name!a}\n")
    digest = hash_text("".join(lines))
    with contextlib.suppress(UserError):
        atomic_write(path, seal({"digest": digest}))
    return digest


def expand_variables(text: str) -> str:
    for word in re.findall(r"\$(\w+|\{\w+\})", text, re.ASCII):
        if (name := word.strip("{}")) not in os.environ:
            raise UserError(f"{text}: the environment variable {name} is not set; export it")
    return os.path.expandvars(text)


def expand_path(text: str | Path) -> Path:
    """Return a local path, with a home directory in place of ``~`` or ``~user``."""
    # A shell expands neither ``--out=~/runs`` nor a path in a file.
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: no such user; a folder of that name is ./{text}") from None


def parse_path(text: str) -> AnyPath:
    if "://" not in text:
        return expand_path(text)
    url = urlsplit(text)
    if url.scheme == "file":
        return Path(unquote(url.path))
    if not url.netloc:
        raise UserError(f"{text} names no bucket; write {url.scheme}://BUCKET/FOLDER")
    if url.query or "@" in url.netloc:
        raise UserError(f"{text}: set endpoint and credentials in the environment (AWS_...)")
    return RemotePath(text.rstrip("/"))


def require_writable(folder: AnyPath, lacks: str) -> None:
    """Check, before hours of work, that a folder that lacks something can be written to."""
    if isinstance(folder, RemotePath):
        # Only an attempt to write shows what an object store allows.
        (folder / ".writable").write_bytes(b"")
    elif not is_writable(folder):
        raise UserError(f"{folder} cannot be written to, and lacks {lacks}")


def is_writable(folder: Path) -> bool:
    """Return whether a local folder, or the nearest one above it that exists, can be written to."""
    existing = next(filter(Path.exists, (folder, *folder.absolute().parents)))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def fetch_files(folder: AnyPath, pattern: str) -> list[tuple[AnyPath, Path]]:
    """Return the matching files of a folder by name, each with its local path."""
    if isinstance(folder, RemotePath):
        return list(folder.fetch(pattern))
    paths = sorted(folder.glob(pattern))
    return list(zip(paths, paths, strict=True))


def refuse_existing(path: AnyPath) -> None:
    if path.exists():
        raise UserError(f"{path} already exists; choose another name, or remove it")


def lock_file(folder: AnyPath, name: str) -> Path:
    """Return the path of a lock: in the folder, or on this machine for a remote one.

    Object stores have no locks that end with their holder, so two nodes may do the same work. Since
    both write the same results, the last one to finish changes nothing.
    """
    if isinstance(folder, RemotePath):
        path = cache_folder() / "locks" / f"{hash_text(folder.url)[:32]}-{name}"
    else:
        path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def folder_to_fill(folder: AnyPath) -> Iterator[Path]:
    """Provide a local folder to write to; its files are uploaded at the end to a remote one."""
    if isinstance(folder, Path):
        yield folder
        return
    with scratch_folder() as scratch:
        yield scratch
        for path in filter(Path.is_file, sorted(scratch.rglob("*"))):
            (folder / path.relative_to(scratch).as_posix()).upload(path)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a temporary folder on the file system of the cached copies."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    remove_abandoned(cache_folder())
    with tempfile.TemporaryDirectory(".tmp", ".scratch.", cache_folder()) as scratch:
        yield Path(scratch)


def remove_folder(folder: AnyPath) -> None:
    if isinstance(folder, RemotePath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def environment(*paths: AnyPath) -> dict[str, str]:
    """Return the variables for reaching S3 from other nodes; none for local paths."""
    if not any(isinstance(path, RemotePath) for path in paths):
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@lru_cache
def _file_system(scheme: str, host: str) -> tuple[fs.FileSystem, str]:
    # A small file is then one request instead of the three of a multipart upload.
    query = "?allow_delayed_open=true" if scheme == "s3" else ""
    try:
        system, base = fs.FileSystem.from_uri(f"{scheme}://{host}/{query}")
    except pa.ArrowInvalid:
        system, base = fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), host
    return system, base.rstrip("/")
