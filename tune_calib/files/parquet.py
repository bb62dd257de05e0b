"""Parquet files of results, with checksums of their pages and, in the footer, of all bytes."""

import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.errors import DamagedFileError
from tune_calib.files.hashes import hash_bytes

# The checksum covers all bytes of the file, with zeros in its own place.
_CHECKSUM = b"tune_calib sha256:"
_ZEROS = b"0" * 64


def seal_table(content: pa.Table, level: int | None = None) -> bytes:
    """Return the bytes of a file with this content and its checksum."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, content.schema, compression="zstd", compression_level=level, write_page_checksum=True
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"tune_calib_checksum": _CHECKSUM + _ZEROS})
    data = bytearray(sink.getvalue())
    start = data.rindex(_CHECKSUM) + len(_CHECKSUM)
    data[start : start + len(_ZEROS)] = hash_bytes(data).encode()
    return bytes(data)


def unseal_table(data: bytes, path: object, way_out: str) -> pq.ParquetFile:
    """Open the bytes of a file for reading.

    Raises:
        DamagedFileError: The file is incomplete, was changed, or has no checksum.
    """
    # The last one, which is in the footer: a text column may contain anything.
    start = data.rfind(_CHECKSUM) + len(_CHECKSUM)
    end, view = start + len(_ZEROS), memoryview(data)
    if hash_bytes(view[:start], _ZEROS, view[end:]).encode() != data[start:end]:
        raise DamagedFileError(
            f"{path} is not a complete Parquet file of tune-calib, by its checksum; {way_out}"
        )
    # For a small file, this is twice as fast as pq.read_table.
    return pq.ParquetFile(pa.BufferReader(data))
