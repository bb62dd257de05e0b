"""Decoded images on disk: one file of NumPy arrays, memory-mapped by every process.

The images of a small data set are checked when the file is opened. Those of a large data set are
read when they are used, so that it need not fit into memory.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Source, Split, Summary
from tune_calib.errors import DamagedFileError, UserError, reading
from tune_calib.files.hashes import hash_bytes, hash_text
from tune_calib.files.paths import content_digest, remove_abandoned, replacing
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DATASETS, DatasetInfo

# Must be raised when a loader returns different pixels for the same files, or the layout changes.
CACHE_VERSION = 3

_BYTES = {"descr": "|u1", "fortran_order": False}  # of the header of an array

LARGE = 2**30  # size of decoded images in bytes above which a data set stays on disk


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
    identity = hash_text(json.dumps(key))[:16]
    path = cache / f"{info.name}-{identity}.images"
    with suppress(DamagedFileError):
        return _read(path)
    # It is absent or damaged. One process writes the file; others wait and read it.
    with _only_writer(path, info.title):
        with suppress(DamagedFileError):
            return _read(path)
        remove_abandoned(cache)
        with replacing(path) as file:
            _write(file, info.load(root), f"decoding {info.title}")
        # Read back, so that this process also maps the shared file.
        return _read(path)


@contextmanager
def _only_writer(path: Path, title: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report_progress(f"waiting for another process to decode {title}", is_urgent=True)
        lock.acquire()
    try:
        yield
    finally:
        # Waiting processes find the written file, so the lock file is no longer needed.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def settled(split: Split, source: Source) -> Split:
    """Read a split of a small data set into memory; leave a split of a large one on disk."""
    size = source.train.images.shape.numel() + source.test.images.shape.numel()
    return split if size > LARGE else split.resident()


def _write(file: BinaryIO, source: Source, doing: str) -> None:
    """Write the images of both parts, their columns, and a summary with a checksum of these."""
    splits = (source.train, source.test)
    total, count = sum(map(len, splits)), 0
    report_progress(doing, 0, total, is_urgent=total > 10_000)  # which takes seconds

    def write(images: NDArray[np.uint8]) -> None:
        nonlocal count
        for split, first in zip(splits, (0, len(source.train)), strict=True):
            if count == first:
                npy.write_array_header_1_0(file, {**_BYTES, "shape": tuple(split.images.shape)})
        file.write(images.data)
        count += len(images)
        report_progress(doing, count, total)

    checks, summary = read_images(source, write)
    content = b""
    for split, checksums in zip(splits, checks, strict=True):
        columns = np.stack([split.labels.numpy(), split.indices.numpy(), np.array(checksums)])
        npy.write_array(file, columns)
        content += columns.tobytes()
    npy.write_array(file, np.array([summary.written(), _checksum(content, summary.written())]))


def _checksum(content: bytes, summary: str) -> str:
    return hash_bytes(content, summary.encode())


def _read(path: Path) -> Source:
    """Open a cache file; the images of a small data set are checked at once."""
    with reading(path, "is not a complete cache file", "delete it"), path.open("rb") as file:
        maps = []
        for _ in ("train", "test"):
            npy.read_magic(file)
            shape, _, _ = npy.read_array_header_1_0(file)
            maps.append(np.memmap(path, np.uint8, "r", offset=file.tell(), shape=shape))
            file.seek(math.prod(shape), 1)
        columns = [npy.read_array(file, allow_pickle=False) for _ in maps]
        summary, checksum = npy.read_array(file, allow_pickle=False).tolist()
        if _checksum(b"".join(map(np.ndarray.tobytes, columns)), summary) != checksum:
            raise ValueError("it does not match its checksum")
        is_small = sum(pixels.size for pixels in maps) <= LARGE
        parts, checks = [], []
        for pixels, (labels, indices, crcs) in zip(maps, columns, strict=True):
            if is_small:
                read = [zlib.crc32(image.data) for image in pixels.view(np.ndarray)]
                if read != crcs.tolist():
                    raise ValueError("an image does not match its checksum")
            images = LazyImages(partial(_copy, pixels), pixels.shape[1:], torch.arange(len(labels)))
            parts.append(Split(images, torch.from_numpy(labels), torch.from_numpy(indices)))
            checks.append(crcs)
        return Source(*parts, summary=Summary.read(summary), checks=tuple(checks))


def _copy(pixels: NDArray[np.uint8], rows: Places) -> Tensor:
    """Copy some images (N, C, H, W) from a map."""
    return torch.from_numpy(np.asarray(pixels[rows]))
