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
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Source, Split, Summary
from tune_calib.errors import DamagedFileError, UserError, reading, way_out
from tune_calib.paths import content_digest, remove_abandoned, replacing
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DATASETS, DatasetInfo

# Must be raised when a loader returns different pixels for the same files, or the layout changes.
CACHE_VERSION = 2

LARGE = 2**30  # size of decoded images in bytes above which a data set stays on disk

_PARTS = ("train", "test")
# Columns of a part, (N,) int64: labels, positions, and the CRC-32 of each image.
_COLUMNS = ("labels", "indices", "checks")

_DAMAGES = (OSError, ValueError, KeyError, TypeError, SafetensorError)


def read_images(
    source: Source, use: Callable[[NDArray[np.uint8]], object]
) -> tuple[list[list[int]], Summary]:
    """Pass all images to ``use`` in chunks; return their CRC-32s by part, digest and moments."""
    digest, checks = hashlib.sha256(), []
    counts = np.zeros((source.train.images.shape[1], 256), np.int64)  # of values, by channel
    for split in (source.train, source.test):
        checksums = []
        for chunk in split.images.split(CHUNK):
            images = chunk.contiguous().numpy()
            checksums += [zlib.crc32(image.data) for image in images]
            if split is source.train:
                # In integers, whose sums do not depend on the order.
                for channel, values in enumerate(images.swapaxes(0, 1)):
                    counts[channel] += np.bincount(values.ravel(), minlength=256)
            use(images)
        digest.update(split.labels.contiguous().numpy().tobytes())
        digest.update(np.array(checksums, np.int64).tobytes())
        checks.append(checksums)
    levels, pixels = np.arange(256), counts[0].sum()
    mean, second = counts @ levels / pixels, counts @ levels**2 / pixels
    std = np.sqrt(np.maximum(second - mean**2, 0))
    return checks, Summary(digest.hexdigest()[:16], _round_moments(mean), _round_moments(std))


def _round_moments(moments: NDArray[np.float64]) -> tuple[float, ...]:
    """Return moments of pixels in [0, 255] as those of pixels in [0, 1], to four digits."""
    return tuple(round(float(moment) / 255, 4) for moment in moments)


def summarise(source: Source) -> Summary:
    """Return digest and moments of a data set; without a cache file, read all images."""
    return source.summary or read_images(source, lambda images: None)[1]


def find_equal_images(source: Source) -> Source:
    """Return a data set with ``image_ids`` of parts that repeat images, and what they share."""
    checks = np.concatenate(source.checks or read_images(source, lambda images: None)[0])
    inverse, counts = np.unique(checks, return_inverse=True, return_counts=True)[1:]
    is_suspect = counts[inverse] > 1
    image_ids, first_by_digest = np.arange(len(checks)), dict[bytes, int]()
    parts, start = [], 0
    for split in (source.train, source.test):
        ids = image_ids[start : start + len(split)]
        suspects = np.flatnonzero(is_suspect[start : start + len(split)])
        start += len(split)
        chunks = split.take(torch.from_numpy(suspects)).images.split(CHUNK)
        for position, image in zip(suspects, chain.from_iterable(chunks), strict=True):
            # Two images may have the same CRC-32 by chance.
            digest = hashlib.sha256(image.numpy().tobytes()).digest()
            ids[position] = first_by_digest.setdefault(digest, ids[position])
        if len(np.unique(ids)) < len(ids):
            split = replace(split, image_ids=torch.from_numpy(ids))
        parts.append(split)
    shared = int((image_ids[len(parts[0]) :] < len(parts[0])).sum())
    return replace(source, train=parts[0], test=parts[1], shared=shared)


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
        return Source(settled(source.train, source), settled(source.test, source))
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
    key = [CACHE_VERSION, content_digest(files), info.reading]
    if plugin:
        key.append(plugin)
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
    size = source.train.images.shape.numel() + source.test.images.shape.numel()
    return split if size > LARGE else split.resident()


class MappedRows:
    """Images (N, C, H, W) of a cache file, each checked by its CRC-32 when it is first read."""

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], checks: Places) -> None:
        self.path, self.checks = path, checks
        self._pixels = np.memmap(path, np.uint8, "r", offset=offset, shape=shape)
        self._is_checked = np.zeros(shape[0], bool)

    def read(self, rows: Places) -> Tensor:
        """Copy some images from the map."""
        images: NDArray[np.uint8] = self._pixels[rows]
        for position in np.flatnonzero(~self._is_checked[rows]):
            self._check(rows[position], images[position])
        return torch.from_numpy(images)

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
    with reading(path, "is not a complete cache file", "delete it", errors=_DAMAGES):
        path.open("rb").close()  # safetensors takes a file that it may not read for an absent one
        with safe_open(path, "np") as file:
            metadata = file.metadata()
            shapes = [tuple(file.get_slice(f"{part}.images").get_shape()) for part in _PARTS]
            total = sum(map(math.prod, shapes))
            start = path.stat().st_size - total  # the images are the last tensors
            parts, checks = [], []
            for part, shape in zip(_PARTS, shapes, strict=True):
                columns = {name: file.get_tensor(f"{part}.{name}") for name in _COLUMNS}
                for name, values in columns.items():
                    if _crc(values) != metadata[f"{part}.{name}"]:
                        raise ValueError(f"{part}.{name} does not match its checksum")
                rows = MappedRows(path, start, shape, columns["checks"])
                if total <= LARGE:
                    rows.check()
                labels, indices = map(torch.from_numpy, (columns["labels"], columns["indices"]))
                images = LazyImages(rows.read, shape[1:], torch.arange(len(labels)))
                parts.append(Split(images, labels, indices))
                checks.append(columns["checks"])
                start += math.prod(shape)
            if _sum_of(metadata) != metadata["header"]:
                raise ValueError("its header does not match its checksum")
            summary = Summary.read(metadata["summary"])
            return Source(*parts, summary=summary, checks=tuple(checks))


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
    names = [f"{part}.{column}" for part, column in product(_PARTS, _COLUMNS)]
    sums = {"header": "0" * 8, "summary": Summary("0" * 16, blank, blank).written()}
    sums |= dict.fromkeys(names, "0" * 8)
    header: dict[str, Any] = {"__metadata__": sums}
    total, end = sum(map(len, splits.values())), 0
    for name in names:
        samples = len(splits[name.partition(".")[0]])
        start, end = end, end + 8 * samples
        header[name] = {"dtype": "I64", "shape": [samples], "data_offsets": [start, end]}
    for part, split in splits.items():
        shape = list(split.images.shape)
        start, end = end, end + math.prod(shape)
        header[f"{part}.images"] = {"dtype": "U8", "shape": shape, "data_offsets": [start, end]}
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
    for (part, split), checksums in zip(splits.items(), checks, strict=True):
        numbers = (split.labels.numpy(), split.indices.numpy(), np.array(checksums, np.int64))
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
