"""Decoded images on disk: one uncompressed safetensors file, memory-mapped by every process.

The file has a checksum for each image. The images of a small data set are all read and checked at
once. Those of a large data set are read and checked when they are first used, so that the data set
need not fit into memory.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Source, Split, Summary
from tune_calib.errors import DamagedFileError, UserError, refuse_unreadable, way_out
from tune_calib.paths import content_digest, refuse_special, remove_abandoned, replacing
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DATASETS, DatasetInfo

# Must be raised when a loader returns different pixels for the same files, or the layout changes.
CACHE_VERSION = 2

LARGE = 2**30
"""Size of decoded images in bytes above which a data set stays on disk."""

_PARTS = ("train", "test")
# Columns of a part, (N,) int64: labels, positions, and the CRC-32 of each image.
_COLUMNS = ("labels", "indices", "checks")


def read_images(
    source: Source, use: Callable[[NDArray[np.uint8]], object]
) -> tuple[list[list[int]], Summary]:
    """Pass all images to ``use`` in chunks; return their CRC-32s by part, digest and moments."""
    digest, checks = hashlib.sha256(), []
    counts: Any = 0  # (C, 256), number of pixels of each value in the training part
    for split in (source.train, source.test):
        own = []
        for chunk in split.images.split(CHUNK):
            images = chunk.contiguous().numpy()
            own += [zlib.crc32(image.data) for image in images]
            if split is source.train:
                # In integers, whose sums do not depend on the order.
                channels = images.swapaxes(0, 1)
                counts += np.array([np.bincount(each.ravel(), minlength=256) for each in channels])
            use(images)
        digest.update(split.labels.contiguous().numpy().tobytes())
        digest.update(np.array(own, np.int64).tobytes())
        checks.append(own)
    values, pixels = np.arange(256), counts[0].sum()
    mean, second = counts @ values / pixels, counts @ values**2 / pixels
    both = (mean, np.sqrt(np.maximum(second - mean**2, 0)))
    moments = (tuple(round(float(value) / 255, 4) for value in each) for each in both)
    return checks, Summary(digest.hexdigest()[:16], *moments)


def summarise(source: Source) -> Summary:
    """Return digest and moments of a data set; without a cache file, read all images."""
    return source.known or read_images(source, lambda images: None)[1]


def count_shared(source: Source) -> int:
    """Count the test images that have exactly the pixels of a training image."""
    checks: Any = source.checks or read_images(source, lambda images: None)[0]
    common, digests = np.intersect1d(*checks), []
    for split, own in zip((source.train, source.test), checks, strict=True):
        rows = torch.from_numpy(np.flatnonzero(np.isin(own, common)))
        images = split.take(rows).images
        # Two images may have the same CRC-32 by chance.
        contents = (image.numpy().tobytes() for chunk in images.split(CHUNK) for image in chunk)
        digests.append([hashlib.sha256(content).digest() for content in contents])
    in_train = set(digests[0])
    return sum(digest in in_train for digest in digests[1])


def load_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Source:
    """Load a data set, from the cache if possible; a damaged cache file is rebuilt.

    Images from the cache and images of a large data set are read when they are used, see
    ``settled``. Without a cache folder, the files are read every time.
    """
    source = open_source(info, root, cache)
    if info.digest is not None and summarise(source).digest != info.digest:
        raise UserError(
            f"{info.name}: `data_root` {root} contains different images than when this was "
            "planned; use the original folder, or another `out`"
        )
    if cache is None:  # decode all images, so that a damaged one is found even if it is not used
        return Source(*(settled(part, source) for part in (source.train, source.test)))
    return source


def open_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Source:
    """Load a data set as ``load_source`` does, without checking its digest."""
    files = info.locate(root)
    report_progress(f"reading {info.title}")
    if cache is None or not files:
        loaded: Source = info.load(root)
        return loaded
    # Another version of a plug-in may read different images from the same files.
    plugin = DATASETS.origin(info.name)
    key = [CACHE_VERSION, content_digest(files), info.reading, *([plugin] if plugin else [])]
    identity = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = cache / f"{info.name}-{identity}.safetensors"
    with suppress(DamagedFileError):
        return _read(path)
    # It is absent or damaged. One process writes the file; others wait and read it.
    with _only_writer(path, info.title):
        with suppress(DamagedFileError):
            return _read(path)
        _write(path, info.load(root), f"decoding {info.title}")
        # Read back, so that this process also maps the shared file.
        return _read(path)


@contextmanager
def _only_writer(path: Path, title: str) -> Iterator[None]:
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report_progress(f"waiting for another process to decode {title}", is_urgent=True)
            lock.acquire()
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    finally:
        # Waiting processes find the written file, so the lock file is no longer needed.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error}; {way_out(error)}")


def settled(split: Split, source: Source) -> Split:
    """Read a split of a small data set into memory; leave a split of a large one on disk."""
    size = sum(part.images.shape.numel() for part in (source.train, source.test))
    return split if size > LARGE else split.resident()


class MappedRows:
    """Images (N, C, H, W) of a cache file, each checked by its CRC-32 when it is first read."""

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], checks: Places) -> None:
        self.path, self.checks = path, checks
        self._pixels = np.memmap(path, np.uint8, "r", offset, shape)
        self._is_checked = np.zeros(shape[0], bool)

    def read(self, rows: Places) -> Tensor:
        """Copy some images from the map."""
        found: NDArray[np.uint8] = self._pixels[rows]
        for place in np.flatnonzero(~self._is_checked[rows]):
            self._check(rows[place], found[place])
        return torch.from_numpy(found)

    def check(self) -> None:
        """Check all images without copying them."""
        for row, image in enumerate(self._pixels.view(np.ndarray)):
            self._check(row, image)

    def _check(self, row: int, image: NDArray[np.uint8]) -> None:
        if zlib.crc32(image.data) != self.checks[row]:
            raise DamagedFileError(
                f"{self.path}: image {row} does not match its checksum; delete the file to have it "
                "created again"
            )
        self._is_checked[row] = True


def _read(path: Path) -> Source:
    """Open a cache file; the images of a small data set are checked at once."""
    refuse_special(path)
    try:
        path.open("rb").close()  # safetensors takes a file that it may not read for an absent one
        with safe_open(path, "np") as file:
            shapes = [tuple(file.get_slice(f"{part}.images").get_shape()) for part in _PARTS]
            total = sum(map(math.prod, shapes))
            start = path.stat().st_size - total  # the images are the last tensors
            parts, checks = [], []
            for part, shape in zip(_PARTS, shapes, strict=True):
                columns = {name: file.get_tensor(f"{part}.{name}") for name in _COLUMNS}
                for name, values in columns.items():
                    if _crc(values) != file.metadata()[f"{part}.{name}"]:
                        raise ValueError(f"{part}.{name} does not match its checksum")
                rows = MappedRows(path, start, shape, columns["checks"])
                if total <= LARGE:
                    rows.check()
                labels, indices = map(torch.from_numpy, (columns["labels"], columns["indices"]))
                images = LazyImages(rows.read, shape[1:], torch.arange(len(labels)))
                parts.append(Split(images, labels, indices))
                checks.append(columns["checks"])
                start += math.prod(shape)
            if _sum_of(file.metadata()) != file.metadata()["header"]:
                raise ValueError("its header does not match its checksum")
            known = Summary.read(file.metadata()["summary"])
            return Source(*parts, known=known, checks=tuple(checks))
    except PermissionError as error:  # another user's file: it may be whole
        raise refuse_unreadable(error, path) from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DamagedFileError(f"{path} is not a complete cache file ({error})") from None


def _crc(values: NDArray[np.int64]) -> str:
    return f"{zlib.crc32(values.tobytes()):08x}"


def _sum_of(metadata: Mapping[str, str]) -> str:
    """Return the CRC-32 of the texts in a header, without its own place."""
    content = {name: text for name, text in metadata.items() if name != "header"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def _write(path: Path, source: Source, doing: str) -> None:
    remove_abandoned(path.parent)
    try:
        with replacing(path) as file:
            _fill(file, source, doing)
    except OSError as error:
        raise _unwritable(path, error) from None


def _fill(file: BinaryIO, source: Source, doing: str) -> None:
    """Write a safetensors file: the header, the columns of both parts, then their images."""
    splits = dict(zip(_PARTS, (source.train, source.test), strict=True))
    blank = (0.0,) * splits["train"].images.shape[1]
    # The header contains checksums of the content; placeholders keep its length the same.
    sums = {"header": "0" * 8, "summary": Summary("0" * 16, blank, blank).written()}
    sums |= {f"{part}.{name}": "0" * 8 for part in _PARTS for name in _COLUMNS}
    header: dict[str, Any] = {"__metadata__": sums}
    total, end = sum(map(len, splits.values())), 0
    shapes = {f"{part}.{name}": [len(splits[part])] for part in _PARTS for name in _COLUMNS}
    shapes |= {f"{part}.images": list(split.images.shape) for part, split in splits.items()}
    for name, shape in shapes.items():
        kind, width = ("U8", 1) if name.endswith(".images") else ("I64", 8)
        start, end = end, end + width * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    first = file.write(_encoded(header))
    file.seek(first + 8 * len(_COLUMNS) * total)
    report_progress(doing, 0, total, is_urgent=total > 10_000)  # which takes seconds
    count = 0

    def write(images: NDArray[np.uint8]) -> None:
        nonlocal count
        file.write(images.data)
        count += len(images)
        report_progress(doing, count, total)

    checks, summary = read_images(source, write)
    file.seek(first)
    for (part, split), own in zip(splits.items(), checks, strict=True):
        numbers = (split.labels.numpy(), split.indices.numpy(), np.array(own, np.int64))
        for name, values in zip(_COLUMNS, numbers, strict=True):
            sums[f"{part}.{name}"] = _crc(values)
            file.write(values.tobytes())
    sums["summary"] = summary.written()
    sums["header"] = _sum_of(sums)
    file.seek(0)
    file.write(_encoded(header))


def _encoded(header: dict[str, Any]) -> bytes:
    """Return the length and the text of a safetensors header."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
