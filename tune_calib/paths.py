"""Where results and artifacts lie: a folder of this machine, or one of an object store by URL.

A local folder is a ``pathlib.Path``. A URL that pyarrow or fsspec knows (``s3://bucket/prefix``,
``gs://``, ``abfs://`` ...) is a ``RemotePath``, with those methods of ``Path`` that are needed.
What is read from one is kept in a folder of this machine, which may be deleted at any time.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa
from pyarrow import fs

from tune_calib.caches import cache_folder
from tune_calib.errors import UserError, describe_os_error

READERS = 16
"""Files that are fetched side by side: a store answers late and can do many things at once."""

# Processes on other nodes start without the driver's variables, and are sent these alone.
_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder of an object store. Its errors are one line, as the user's they mostly are.

    Attributes:
        url: without a slash at the end.
    """

    url: str

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        """Return the path of a name in this folder."""
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """Return the last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """Return the parent folder."""
        return RemotePath(self.url.rpartition("/")[0])

    def resolve(self) -> "RemotePath":
        """Return itself: a URL is absolute."""
        return self

    def exists(self) -> bool:
        """Return whether it is a file or a folder that is not empty."""
        return bool(self._info().type != fs.FileType.NotFound)

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yield the files and folders in it."""
        for info in self._listed():
            yield self / info.base_name

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yield the paths below it that match, as ``Path.glob`` does."""
        first, _, rest = pattern.partition("/")
        for place in self.iterdir():
            if not fnmatchcase(place.name, first):
                continue
            if not rest:
                yield place
            # A name without a star is asked for by itself: listing a folder may take many requests.
            elif "*" in rest:
                yield from place.glob(rest)
            elif (place / rest).exists():
                yield place / rest

    def read_bytes(self) -> bytes:
        """Return the content."""
        with self._connect("read") as (system, path), system.open_input_stream(path) as stream:
            content: bytes = stream.read()
        return content

    def read_text(self) -> str:
        """Return the content as text."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Write a file; a reader sees the whole of it or nothing."""
        with self._connect("write") as (system, path), system.open_output_stream(path) as stream:
            stream.write(content)

    def upload(self, source: Path) -> None:
        """Write a file of this machine; a reader sees the whole of it or nothing."""
        with self._connect("write") as (system, path):
            fs.copy_files(
                str(source),
                path,
                source_filesystem=fs.LocalFileSystem(),
                destination_filesystem=system,
            )

    def download(self, target: Path) -> None:
        """Copy to a file of this machine, which appears whole."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with self._connect("read") as (system, path):
                fs.copy_files(
                    path,
                    str(temporary),
                    source_filesystem=system,
                    destination_filesystem=fs.LocalFileSystem(),
                )
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def unlink(self) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._connect("remove") as (system, path):
            system.delete_file(path)

    def remove(self) -> None:
        """Remove a folder and what is in it, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._connect("remove") as (system, path):
            system.delete_dir(path)

    def fetched(self, pattern: str) -> list[tuple["RemotePath", Path]]:
        """Return matching files of this folder by name, each with its local copy."""
        if "*" in pattern:
            infos = [info for info in self._listed() if fnmatchcase(info.base_name, pattern)]
        else:
            infos = [(self / pattern)._info()]
        files = sorted((self / i.base_name, i) for i in infos if i.type == fs.FileType.File)
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda file: (file[0], file[0]._copy(file[1])), files))

    def _copy(self, info: fs.FileInfo) -> Path:
        """Return the local copy of one version of a file."""
        # A file that was written anew has another size or time, and so another copy: none is ever
        # out of date.
        copy = cache_folder() / "files" / _digest(f"{self.url} {info.size} {info.mtime_ns}")
        if not copy.exists():
            self.download(copy)
        return copy

    def _info(self) -> fs.FileInfo:
        with self._connect("reach") as (system, path):
            return system.get_file_info(path)

    def _listed(self) -> list[fs.FileInfo]:
        with self._connect("reach") as (system, path):
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(found, key=lambda info: info.path)

    @contextlib.contextmanager
    def _connect(self, what: str) -> Iterator[tuple[fs.FileSystem, str]]:
        """Provide the file system and the path in it; turn its errors into one line."""
        scheme, _, rest = self.url.partition("://")
        host, _, path = rest.partition("/")
        try:
            system, base = _file_system(scheme, host)
            yield system, f"{base}/{path}" if base else path
        # Every library behind fsspec has errors of its own.
        except Exception as error:
            if isinstance(error, FileNotFoundError) and what in ("read", "remove"):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"cannot {what} {self.url}: {reason}") from None


AnyPath = Path | RemotePath


def expand_path(text: str | Path) -> Path:
    """Return a local path, with the home directory in place of ``~``."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: nobody is named so on this machine; is the path right?") from None


def parse_path(text: str) -> AnyPath:
    """Parse a local path or a URL."""
    check_path(text)
    if "://" not in text:
        return Path(text)
    url = urlsplit(text)
    if url.scheme == "file":
        return Path(unquote(url.path))
    if not url.netloc:
        raise UserError(f"{text} names no bucket; write {url.scheme}://BUCKET/FOLDER")
    if url.query or "@" in url.netloc:
        raise UserError(f"{text}: leave endpoint and credentials to the environment (AWS_...)")
    return RemotePath(text.rstrip("/"))


def is_file_name(name: str) -> bool:
    """Return whether a name that comes from a file is that of something directly in a folder.

    Neither this system nor another one must take it for a path that leads elsewhere.
    """
    return name not in ("", ".", "..") and not any(
        character in "/\\:" or ord(character) < 32 for character in name
    )


def check_path(text: str) -> None:
    """Refuse what no system takes for the name of a file or folder."""
    try:
        is_path = bool(text.strip()) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise UserError(f"{text!a} is no path; name a file or folder")


def require_writable(folder: AnyPath, lacks: str) -> None:
    """Check that a folder can be written, before hours of work.

    Args:
        folder: the folder.
        lacks: what will be written, for the message.
    """
    if isinstance(folder, RemotePath):
        # An object store tells what is allowed only when it is tried.
        (folder / ".writable").write_bytes(b"")
        return
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UserError(f"{there} is a file, and a folder should lie there; name another place")
    if not is_writable(folder):
        raise UserError(f"{folder} cannot be written, and lacks {lacks}")


def is_writable(folder: Path) -> bool:
    """Return whether a local folder and the folders in it can be written."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # Those in it as well: a store that somebody else filled may be writable where its networks are
    # not.
    inside = [path for path in there.iterdir() if path.is_dir()] if there == folder else []
    return all(os.access(path, os.W_OK | os.X_OK) for path in (there, *inside))


def fetch_files(folder: AnyPath, pattern: str) -> list[tuple[AnyPath, Path]]:
    """Return matching files of a folder by name, each with its local path."""
    if isinstance(folder, RemotePath):
        return list(folder.fetched(pattern))
    refuse_unlisted(folder)
    found = sorted(folder.glob(pattern))
    for path in found:
        refuse_special(path)
    return [(path, path) for path in found]


def refuse_special(path: AnyPath) -> None:
    """Refuse a pipe or a device in the place of a file: to read it might never end."""
    if isinstance(path, Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is a pipe or a device and no file; remove it")


def refuse_link(path: AnyPath) -> None:
    """Refuse a link where the program writes: it may lead out of the folder of results."""
    if isinstance(path, Path) and path.is_symlink():
        raise UserError(f"{path} is a link, and what it leads to might be overwritten; remove it")


def refuse_unlisted(folder: AnyPath) -> None:
    """Refuse a local folder that is there and cannot be listed, which ``glob`` takes for empty."""
    if isinstance(folder, RemotePath):
        return
    try:
        os.scandir(folder).close()
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        if not is_absent or os.path.lexists(folder):
            raise UserError(describe_os_error(error)) from None


def lock_file(folder: AnyPath, name: str) -> Path:
    """Return the path of a lock: in the folder, or on this machine for a remote one.

    Object stores have no locks that end with their holder. Two nodes may so do the same work;
    since it is the same, whoever is last changes nothing.
    """
    if isinstance(folder, RemotePath):
        path = cache_folder() / "locks" / f"{_digest(folder.url)}-{name}"
    else:
        path = folder / name
    refuse_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def folder_to_fill(folder: AnyPath) -> Iterator[Path]:
    """Provide a local folder for programs that write to paths.

    Yields:
        The folder itself; for a remote one an empty folder, whose files are uploaded at the end.
    """
    if isinstance(folder, Path):
        for name in ("tables", "figures"):
            refuse_link(folder / name)
        yield folder
        return
    with scratch_folder() as scratch:
        yield scratch
        for path in sorted(scratch.rglob("*")):
            if path.is_file():
                (folder / path.relative_to(scratch).as_posix()).upload(path)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a temporary folder on the file system of the cached copies."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        yield Path(scratch)


def remove_folder(folder: AnyPath) -> None:
    """Remove a folder and what is in it, if it is there."""
    if isinstance(folder, RemotePath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def environment(*places: AnyPath) -> dict[str, str]:
    """Return the variables for reaching S3 from other nodes; none for local paths."""
    if not any(isinstance(each, RemotePath) for each in places):
        return {}
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache
def _file_system(scheme: str, host: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a bucket, and the path of the bucket in it."""
    # A small file is then one request, not the three of an upload in parts.
    query = "?allow_delayed_open=true" if scheme == "s3" else ""
    try:
        system, base = fs.FileSystem.from_uri(f"{scheme}://{host}/{query}")
    except pa.ArrowInvalid:
        system, base = fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), host
    return system, base.rstrip("/")
