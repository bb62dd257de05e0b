"""Decoded images on disk: one file of NumPy arrays, memory-mapped by every process.

The images of a small data set are checked when the file is opened. Those of a large data set are
read when they are used, so that it need not fit into memory.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Source, Split, Summary
from tune_calib.errors import DamagedFileError, UserError, reading
from tune_calib.files.documents import hash_bytes, hash_text
from tune_calib.files.paths import content_digest, remove_abandoned, replacing
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DATASETS, DatasetInfo

# Must be raised when a loader returns different pixels for the same files, or the layout changes.
CACHE_VERSION = 5

_BYTES = {"descr": "|u1", "fortran_order": False}  # of the header of an array

LARGE = 2**30  # size of decoded images in bytes above which a data set stays on disk


def _hash_parts(labels: Sequence[Places], checks: Sequence[Sequence[int]]) -> str:
    contents = []
    for part_labels, part_checks in zip(labels, checks, strict=True):
        contents += [part_labels.tobytes(), np.array(part_checks, np.int64).tobytes()]
    return hash_bytes(*contents)[:16]


def _scan(
    source: Source, file: BinaryIO | None = None, doing: str = ""
) -> tuple[Summary, list[list[int]]]:
    """Return the summary, and for each image of both parts the number of the first equal one.

    The images are also written to a file, if there is one.
    """
    splits = (source.train, source.test)
    number, total = 0, sum(map(len, splits))
    counts = np.zeros((source.train.images.shape[1], 256), np.int64)  # of pixel values of train
    checks: list[list[int]] = [[], []]
    image_ids: list[list[int]] = [[], []]
    firsts: dict[bytes, int] = {}
    for part, split in enumerate(splits):
        if file is not None:
            npy.write_array_header_1_0(file, {**_BYTES, "shape": tuple(split.images.shape)})
        for chunk in split.images.split(CHUNK):
            images = chunk.contiguous().numpy()
            if file is not None:
                report_progress(doing, number, total, is_urgent=total > 10_000 and number == 0)
                file.write(images.data)
            for image in images:
                checks[part].append(zlib.crc32(image.data))
                digest = hashlib.sha256(image.data).digest()
                image_ids[part].append(firsts.setdefault(digest, number))
                number += 1
            if part == 0:
                for channel, values in enumerate(images.swapaxes(0, 1)):
                    counts[channel] += np.bincount(values.ravel(), minlength=256)
    # In integers, whose sums do not depend on the order.
    levels, pixels = np.arange(256), counts[0].sum()
    mean, second = counts @ levels / pixels, counts @ levels**2 / pixels
    std = np.sqrt(np.maximum(second - mean**2, 0))
    # Of pixels in [0, 1], to four digits.
    moments = (tuple(round(float(x) / 255, 4) for x in values) for values in (mean, std))
    labels = [split.labels.contiguous().numpy() for split in splits]
    return Summary(_hash_parts(labels, checks), *moments), image_ids


def summarise(source: Source) -> Summary:
    """Return digest and moments of a data set; without a cache file, read all images."""
    return source.summary or _scan(source)[0]


def find_equal_images(source: Source) -> Source:
    """Return a data set with ``image_ids`` of parts that repeat images, and what they share."""
    image_ids = source.image_ids or _scan(source)[1]
    parts = []
    for split, ids in zip((source.train, source.test), image_ids, strict=True):
        if len(set(ids)) < len(ids):
            split = replace(split, image_ids=torch.tensor(ids))
        parts.append(split)
    shared = sum(number < len(source.train) for number in image_ids[1])
    return replace(source, train=parts[0], test=parts[1], shared=shared)


def load_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Source:
    """Load a data set from the cache, or read its files without a cache folder."""
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
    key = [CACHE_VERSION, content_digest(files), info.reading]
    if plugin := DATASETS.origin(info.name):  # another version may read different images
        key.append(plugin)
    identity = hash_text(json.dumps(key))[:16]
    path = cache / f"{info.name}-{identity}.images"
    with suppress(DamagedFileError):
        return _read(path)
    # It is absent or damaged. One process writes the file; others wait and read it.
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        with suppress(DamagedFileError):
            return _read(path)
        remove_abandoned(cache)
        with replacing(path) as file:
            _write(file, info.load(root), f"decoding {info.title}")
        # Read back, so that this process also maps the shared file.
        return _read(path)


def settled(split: Split, source: Source) -> Split:
    """Read a split of a small data set into memory; leave a split of a large one on disk."""
    size = source.train.images.shape.numel() + source.test.images.shape.numel()
    return split if size > LARGE else split.resident()


def _write(file: BinaryIO, source: Source, doing: str) -> None:
    scanned, image_ids = _scan(source, file, doing)
    content, summary = b"", json.dumps(asdict(scanned))
    for split, ids in zip((source.train, source.test), image_ids, strict=True):
        columns = np.stack([split.labels.numpy(), split.indices.numpy(), np.array(ids, np.int64)])
        npy.write_array(file, columns)
        content += columns.tobytes()
    npy.write_array(file, np.array([summary, hash_bytes(content, summary.encode())]))


def _read(path: Path) -> Source:
    with reading(path, "is not a complete cache file", "delete it"), path.open("rb") as file:
        maps = []
        for _ in ("train", "test"):
            npy.read_magic(file)
            shape, _, _ = npy.read_array_header_1_0(file)
            maps.append(np.memmap(path, np.uint8, "r", offset=file.tell(), shape=shape))
            file.seek(math.prod(shape), 1)
        columns = [npy.read_array(file, allow_pickle=False) for _ in maps]
        summary, checksum = npy.read_array(file, allow_pickle=False).tolist()
        if hash_bytes(*map(np.ndarray.tobytes, columns), summary.encode()) != checksum:
            raise ValueError("it does not match its checksum")
        digest, mean, std = json.loads(summary).values()
        if sum(pixels.size for pixels in maps) <= LARGE:
            checks = [[zlib.crc32(image.data) for image in part.view(np.ndarray)] for part in maps]
            if _hash_parts([part[0] for part in columns], checks) != digest:
                raise ValueError("its images do not match their digest")
        parts = []
        for pixels, (labels, indices, _) in zip(maps, columns, strict=True):
            images = LazyImages(partial(_copy, pixels), pixels.shape[1:], torch.arange(len(labels)))
            parts.append(Split(images, torch.from_numpy(labels), torch.from_numpy(indices)))
        moments = Summary(digest, tuple(mean), tuple(std))
        image_ids = tuple(part[2].tolist() for part in columns)
        return Source(*parts, summary=moments, image_ids=image_ids)


def _copy(pixels: NDArray[np.uint8], rows: Places) -> Tensor:
    return torch.from_numpy(np.asarray(pixels[rows]))
