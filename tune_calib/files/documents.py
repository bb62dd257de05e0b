"""JSON and Parquet files of the program, with checksums against damage and edits; SHA-256."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.errors import DamagedFileError, UnsealedFileError

CHECKSUM = "checksum"
"""Key of the SHA-256 of all other keys and their values, whatever their order and layout."""


def seal(content: Mapping[str, Any], indent: int | None = 1) -> bytes:
    """Return the text of a JSON file with its checksum, which replaces an earlier one."""
    plain = {name: value for name, value in content.items() if name != CHECKSUM}
    # As it is read: keys are text, and tuples are lists.
    parsed = json.loads(json.dumps(plain))
    plain[CHECKSUM] = _checksum_of(parsed)
    return f"{json.dumps(plain, indent=indent)}\n".encode()


def unseal(data: bytes | str, path: object) -> dict[str, Any]:
    """Return the content of a JSON file without its checksum, which is verified.

    Raises:
        DamagedFileError: The file is incomplete, its content was changed, or it has no checksum.
    """
    try:
        content = json.loads(data)
    # Garbage may consist of brackets, which exceed the recursion limit of the parser.
    except (ValueError, RecursionError):
        raise DamagedFileError(f"{path} is incomplete") from None
    if not isinstance(content, dict) or CHECKSUM not in content:
        raise UnsealedFileError(
            f"{path} has no checksum: move it away, and run the command that wrote it again"
        )
    if content.pop(CHECKSUM) != _checksum_of(content):
        raise DamagedFileError(f"{path} was changed after it was written: its checksum differs")
    return content


def _checksum_of(content: dict[str, Any]) -> str:
    return hash_text(json.dumps(content, sort_keys=True, separators=(",", ":")))


# The checksum covers all bytes of the file, with zeros in its own place.
_MARK = b"tune_calib sha256:"
_ZEROS = b"0" * 64


def seal_table(content: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, content.schema, compression="zstd", write_page_checksum=True, **options
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"tune_calib_checksum": _MARK + _ZEROS})
    data = bytearray(sink.getvalue())
    start = data.rindex(_MARK) + len(_MARK)
    data[start : start + len(_ZEROS)] = hash_bytes(data).encode()
    return bytes(data)


def unseal_table(data: bytes, path: object, way_out: str) -> pq.ParquetFile:
    """Open the bytes of a file for reading.

    Raises:
        DamagedFileError: The file is incomplete, was changed, or has no checksum.
    """
    # The last one, which is in the footer: a text column may contain anything.
    start = data.rfind(_MARK) + len(_MARK)
    end, view = start + len(_ZEROS), memoryview(data)
    if hash_bytes(view[:start], _ZEROS, view[end:]).encode() != data[start:end]:
        raise DamagedFileError(
            f"{path} is not a complete Parquet file of tune-calib, by its checksum; {way_out}"
        )
    # For a small file, this is twice as fast as pq.read_table.
    return pq.ParquetFile(pa.BufferReader(data))


def hash_bytes(*parts: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of some bytes, one after another."""
    content = hashlib.sha256()
    for part in parts:
        content.update(part)
    return content.hexdigest()


def hash_text(text: str) -> str:
    return hash_bytes(text.encode())


def checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
