"""Decoded images on disk: one uncompressed safetensors file, memory-mapped by every process."""

import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tune_calib.data.base import DatasetInfo, Source, Split
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.registry import DATASETS

# Raise it when a loader gives other pixels for the same files.
CACHE_VERSION = 1

_FIELDS = ("images", "labels", "indices")


def load_source(info: DatasetInfo, root: Path | None, cache: Path | None) -> Source:
    """Load a data set, from the cache if it holds it; a damaged cache file is rebuilt.

    Args:
        info: the data set.
        root: where its files lie.
        cache: folder of decoded images, made when needed; none reads the files every time.

    Raises:
        DataNotFoundError: the root does not hold the data set.
        DamagedFileError: a file of the data set is damaged.
        UserError: the cache cannot be written.
    """
    files = info.locate(root)
    if cache is None or not files:
        return info.load(root)
    path = cache / f"{info.name}-{_key(files, DATASETS.origin(info.name))}.safetensors"
    if path.exists():
        try:
            return _read(path)
        except DamagedFileError:
            pass
    _write(path, info.load(root))
    # Read back, so that this process too maps the file that the others share.
    return _read(path)


def _key(files: Sequence[Path], plugin: str | None) -> str:
    """Digest of name, size and modification time of every source file, and of who reads them."""
    # Not by content: that would be to read all of it at every start.
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    # Another version of a plug-in may make other images of the same files.
    content = [CACHE_VERSION, stats, *([plugin] if plugin else [])]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _checksum(tensor: Tensor) -> str:
    # Against damage, not against malice: every process computes it over all images.
    return str(zlib.crc32(tensor.numpy().data))


def _read(path: Path) -> Source:
    parts = {}
    try:
        with safe_open(path, framework="pt") as file:
            checksums = file.metadata() or {}
            for part in ("train", "test"):
                tensors = {name: file.get_tensor(f"{part}.{name}") for name in _FIELDS}
                for name, tensor in tensors.items():
                    if checksums.get(f"{part}.{name}") != _checksum(tensor):
                        raise DamagedFileError(f"{path} does not match its checksum")
                parts[part] = Split(**tensors)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a whole cache file ({error})") from None
    return Source(**parts)


def _write(path: Path, source: Source) -> None:
    """Write under another name and rename, so that no process ever maps half a file."""
    tensors = {
        f"{part}.{name}": getattr(split, name).contiguous()
        for part, split in (("train", source.train), ("test", source.test))
        for name in _FIELDS
    }
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, {name: _checksum(t) for name, t in tensors.items()})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink()
        raise UserError(f"cannot write {path}: {error}; free space or mend it") from None
