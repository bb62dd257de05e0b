"""Decoded images on disk: one uncompressed safetensors file, memory-mapped by every process.

It is written image by image and has a checksum of each. Those of a small data set are all read and
checked at once; those of a large one when they are first gathered, so that it need not fit into
memory.
"""

import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data.base import Source, Split
from tune_calib.data.images import CHUNK, LazyImages, Places
from tune_calib.data.tally import Summary, Tally
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import content_digest
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DATASETS, DatasetInfo

# Raise it when a loader gives other pixels for the same files, or the file has another layout.
CACHE_VERSION = 2

LARGE = 2**30
"""Bytes of decoded images from which on a data set stays on disk."""

# So many images take seconds to decode.
_MANY = 10_000

_PARTS = ("train", "test")
# Numbers of a part, (N,) int64: of labels, of positions, and the CRC-32 of each image.
_COLUMNS = ("labels", "indices", "checks")


@dataclass(frozen=True, eq=False)
class Opened:
    """A data set, and what its cache file says of its images; None without one."""

    source: Source
    known: Summary | None = None

    def summary(self) -> Summary:
        """Return digest and moments of the images; without a cache they are all read for it."""
        if self.known is not None:
            return self.known
        tally = Tally()
        for images in (self.source.train.images, self.source.test.images):
            tally.begin()
            for chunk in images.split(CHUNK):
                tally.add(chunk.numpy())
        return tally.summary((self.source.train.labels, self.source.test.labels))


def load_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Source:
    """Load a data set, from the cache if it holds it; a damaged cache file is rebuilt.

    Images of the cache, and those of a large data set, are read when they are used: see
    ``settled``. Without a cache folder the files are read every time.

    Raises:
        DataNotFoundError: the root does not hold the data set.
        DamagedFileError: a file of the data set is damaged.
        UserError: the cache cannot be written, or the images are not those that were planned with.
    """
    return load_opened(info, root, cache).source


def load_opened(info: DatasetInfo, root: Path | None, cache: Path | None) -> Opened:
    """Load a data set as ``load_source``, with what is known of its images."""
    opened = open_source(info, root, cache)
    if info.digest is not None and opened.summary().digest != info.digest:
        raise UserError(
            f"{info.name}: `data_root` {root} holds other images than those that this was planned "
            "with; name the folder as it was, or another `out`"
        )
    source = opened.source
    if cache is None:  # all are decoded, so that a damaged one is found whichever are used
        parts = (settled(source.train, source), settled(source.test, source))
        return replace(opened, source=Source(*parts))
    return opened


def open_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Opened:
    """Load a data set as ``load_source`` does, whatever the digest of its images."""
    files = info.locate(root)
    report_progress(f"reading {info.title}")
    if cache is None or not files:
        return Opened(info.load(root))
    path = cache / f"{info.name}-{_key(files, info)}.safetensors"
    if (found := _whole(path)) is not None:
        return found
    # Whoever comes meanwhile waits and reads what the first one wrote.
    with _only_writer(path, info.title):
        if (found := _whole(path)) is not None:
            return found
        _write(path, info.load(root), f"decoding {info.title}")
    # Read back, so that this process too maps the file that the others share.
    return Opened(*_read(path))


def _whole(path: Path) -> Opened | None:
    """Open a cache file; None if there is none, or if it is damaged and must be made again."""
    if path.exists():
        with suppress(DamagedFileError):
            source, known = _read(path)
            if not is_large(source):
                for images in (source.train.images, source.test.images):
                    assert isinstance(images, LazyImages)
                    assert isinstance(images.rows, MappedRows)
                    images.rows.check()
            return Opened(source, known)
    return None


@contextmanager
def _only_writer(path: Path, title: str) -> Iterator[None]:
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report_progress(f"waiting for another process that decodes {title}", at_once=True)
            lock.acquire()
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    finally:
        # Whoever waits finds what was written, so that nobody needs the file of the lock any more.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error}; free space or mend it")


def is_large(source: Source) -> bool:
    """Return whether a data set stays on disk."""
    return sum(split.images.shape.numel() for split in (source.train, source.test)) > LARGE


def settled(split: Split, source: Source) -> Split:
    """Read a split of a small data set into memory; that of a large one stays on disk."""
    return split if is_large(source) else split.resident()


def _key(files: Sequence[Path], info: DatasetInfo) -> str:
    """Return digest of name and content of every source file, and of how it is read."""
    # Another version of a plug-in may make other images of the same files.
    plugin = DATASETS.origin(info.name)
    content = [CACHE_VERSION, content_digest(files), info.reading, *([plugin] if plugin else [])]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


class MappedRows:
    """Images (N, C, H, W) of a cache file, each checked by its CRC-32 when it is first read."""

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, int, int, int], checks: Places
    ) -> None:
        self.path, self.shape, self.checks = path, shape, checks
        self._pixels = np.memmap(path, np.uint8, "r", offset, shape)
        self._is_checked = np.zeros(shape[0], bool)

    def read(self, rows: Places) -> Tensor:
        """Copy some images out of the map."""
        found: NDArray[np.uint8] = self._pixels[rows]
        for place in np.flatnonzero(~self._is_checked[rows]):
            self._check(rows[place], found[place])
        return torch.from_numpy(found)

    def check(self) -> None:
        """Check all images, and keep none in memory."""
        for row, image in enumerate(self._pixels.view(np.ndarray)):
            self._check(row, image)

    def _check(self, row: int, image: NDArray[np.uint8]) -> None:
        if zlib.crc32(image.data) != self.checks[row]:
            raise DamagedFileError(
                f"{self.path}: image {row} does not match its checksum; delete the file, and it is "
                "made again"
            )
        self._is_checked[row] = True


def _read(path: Path) -> tuple[Source, Summary]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                raise ValueError("its header is longer than itself")
            header = json.loads(file.read(length))
            parts = [_part(path, file, header, part, 8 + length) for part in _PARTS]
            known = Summary.read(header["__metadata__"]["summary"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DamagedFileError(f"{path} is not a whole cache file ({error})") from None
    return Source(*parts), known


def _part(path: Path, file: BinaryIO, header: dict[str, Any], part: str, start: int) -> Split:
    columns = {}
    for name in _COLUMNS:
        first, last = header[f"{part}.{name}"]["data_offsets"]
        file.seek(start + first)
        content = bytearray(file.read(last - first))
        if f"{zlib.crc32(content):08x}" != header["__metadata__"][f"{part}.{name}"]:
            raise DamagedFileError(f"{path} does not match its checksum")
        columns[name] = np.frombuffer(content, np.int64)
    about = header[f"{part}.images"]
    count, channels, height, width = about["shape"]
    shape = (count, channels, height, width)
    rows = MappedRows(path, start + about["data_offsets"][0], shape, columns["checks"])
    labels, indices = (torch.from_numpy(columns[name]) for name in ("labels", "indices"))
    return Split(LazyImages.all_of(rows), labels, indices)


def _write(path: Path, source: Source, doing: str) -> None:
    """Write under another name and rename, so that no process ever maps half a file."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                _fill(file, source, doing)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def _fill(file: BinaryIO, source: Source, doing: str) -> None:
    splits = dict(zip(_PARTS, (source.train, source.test), strict=True))
    count, total = 0, sum(map(len, splits.values()))
    report_progress(doing, count, total, at_once=total > _MANY)
    # The head holds checksums of what is behind it, and is as long before they are known.
    file.write(_head(splits, {}, None))
    start = file.tell()
    file.seek(sum(8 * len(split) * len(_COLUMNS) for split in splits.values()), os.SEEK_CUR)
    tally = Tally()
    numbers = {}
    for part, split in splits.items():
        checks = tally.begin()
        for images in split.images.split(CHUNK):
            content = images.contiguous().numpy()
            tally.add(content)
            file.write(content.data)
            count += len(content)
            report_progress(doing, count, total)
        numbers[part] = {
            "labels": split.labels.numpy(),
            "indices": split.indices.numpy(),
            "checks": np.array(checks, np.int64),
        }
    file.seek(start)
    for part in _PARTS:
        for name in _COLUMNS:
            file.write(numbers[part][name].tobytes())
    file.seek(0)
    file.write(_head(splits, numbers, tally.summary([split.labels for split in splits.values()])))


def _head(
    splits: dict[str, Split], numbers: dict[str, dict[str, Places]], known: Summary | None
) -> bytes:
    """Return length and header of a safetensors file: first numbers, then images."""
    channels = splits["train"].images.shape[1]
    told = (known or Summary.blank(channels)).written()
    sums: dict[str, str] = {"summary": told}
    header: dict[str, Any] = {"__metadata__": sums}
    offset = 0
    for part, split in splits.items():
        for name in _COLUMNS:
            values = numbers[part][name].tobytes() if numbers else b""
            sums[f"{part}.{name}"] = f"{zlib.crc32(values):08x}"
            end = offset + 8 * len(split)
            header[f"{part}.{name}"] = _entry("I64", [len(split)], offset, end)
            offset = end
    for part, split in splits.items():
        end = offset + split.images.shape.numel()
        header[f"{part}.images"] = _entry("U8", list(split.images.shape), offset, end)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
