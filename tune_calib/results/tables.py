"""The result tables: Parquet with a version, written atomically, read strictly.

Four tables, one file of each a Ray trial, and those asked for beside them, under one folder:

* ``trials``: one row a trial spec; every metric is a float column ``<split>/<name>``;
* ``curves``: one row a (trial, epoch, name): what was recorded while training;
* ``bins``: one row a (trial, split, bin): the reliability diagram;
* ``samples``: one row a (trial, split, epoch, sample), of methods that judge single samples;
* ``corruptions``: one row a (trial, kind, severity) of corrupted test images, of before ``shifts``;
* ``logits``: one row a (trial, test sample) of some hundred samples, where asked for;
* ``intervals``: one row a (trial, split, metric) of bootstrap intervals, where asked for;
* ``shifts``: one row a (trial, shifted set, metric), where asked for.

The ``trials`` file is written last: a trial is done when its row is on disk.
"""

import contextlib
import fnmatch
import hashlib
import itertools
import json
import os
import re
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.errors import DamagedFileError, UserError, describe_os_error, way_out
from tune_calib.paths import AnyPath, RemotePath, fetch_files
from tune_calib.results.columns import COLUMNS, TableName
from tune_calib.spec.metrics import METRICS

SCHEMA_VERSION = 1
FILES_AT_ONCE = 256
# Raise it when a trial of the same spec gets other numbers: rows of two versions are not mixed.
# Rows without it are of version 1.
NUMBERS = 1
_KEY = b"tune_calib"

# The checksum of a file stands in its footer and is of all its bytes, with zeros in place of
# itself. The mark says in another place that there is one: so no single flipped bit can turn a file
# into one of before there were checksums.
_CHECKSUM = b"tune_calib sha256:"
_ZEROS = b"0" * 64
_ALL = re.compile(".*")
_DIGEST = re.compile(rb"[0-9a-f]{64}")

SCHEMAS: dict[TableName, pa.Schema] = {
    table: pa.schema([(name, column.type) for name, column in columns.items()])
    for table, columns in COLUMNS.items()
}


def is_metric_column(name: str) -> bool:
    """Whether a column is ``<split>/<metric>`` with a metric of ``names.METRICS``."""
    return "/" in name and name.rpartition("/")[2] in METRICS


def _schema(table: TableName, rows: list[dict[str, Any]]) -> pa.Schema:
    schema = SCHEMAS[table]
    if table == "trials":
        extra = sorted({key for row in rows for key in row} - set(schema.names))
        foreign = [name for name in extra if not is_metric_column(name)]
        if foreign:
            raise ValueError(f"columns {foreign} are neither in the schema nor metrics")
        for name in extra:
            schema = schema.append(pa.field(name, pa.float64()))
    return schema


def _mark(table: TableName) -> dict[bytes, bytes]:
    mark = {"table": table, "version": SCHEMA_VERSION, "checksum": "sha256"}
    return {_KEY: json.dumps(mark).encode()}


def atomic_write(path: AnyPath, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, also after a crash.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            # Before the rename: else a crash of the machine may leave the name with nothing in it.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}; {way_out(error)}") from None


def write_results(
    out: AnyPath,
    name: str,
    tables: dict[TableName, list[dict[str, Any]]],
    samples: pa.Table | None = None,
) -> None:
    """Write the files of one Ray trial, ``trials`` last.

    Args:
        out: folder of the sweep.
        name: file name without suffix; the same name overwrites.
        tables: rows of ``trials``, ``curves`` and ``bins``.
        samples: the ``samples`` table, whose rows are too many for Python; no file if it is empty.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    if samples is not None and samples.num_rows:
        write_file(out, name, "samples", samples)
    # trials last, because its row says that the trial is done: what dies before is run again and
    # overwrites the others.
    order: tuple[TableName, ...] = ("curves", "bins", "trials")
    for table in order:
        rows = tables.get(table, [])
        write_file(out, name, table, pa.Table.from_pylist(rows, schema=_schema(table, rows)))


def write_table(out: AnyPath, table: TableName, name: str, content: pa.Table) -> None:
    """Write a file of a table that stands beside the trials; columns that it lacks are null.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    whole = _with_absent(content, table).select(SCHEMAS[table].names).cast(SCHEMAS[table])
    write_file(out, name, table, whole)


def write_file(
    out: AnyPath, name: str, table: TableName, content: pa.Table, level: int | None = None
) -> None:
    """Write one file of a table, marked and with checksums of its pages and of its bytes.

    Args:
        out: folder of the sweep.
        name: file name without suffix; the same name overwrites.
        table: which table.
        content: its columns, which are written as they are.
        level: of the compression; that of pyarrow unless given.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    content = content.replace_schema_metadata(_mark(table))
    # In memory first, so that a disk and an object store get the same single write.
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, content.schema, compression="zstd", compression_level=level, write_page_checksum=True
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"tune_calib_checksum": _CHECKSUM + _ZEROS})
    data = bytearray(sink.getvalue())
    start = data.rindex(_CHECKSUM) + len(_CHECKSUM)
    data[start : start + len(_ZEROS)] = hashlib.sha256(data).hexdigest().encode()
    atomic_write(out / table / f"{name}.parquet", bytes(data))


def read_table(
    out: AnyPath,
    table: TableName,
    name: str = "*",
    columns: Collection[str] = ("*",),
    encoded: Collection[str] = (),
) -> pa.Table:
    """Read one table of a sweep.

    Args:
        out: folder of the sweep.
        table: which table.
        name: file name without suffix, to read one Ray trial alone.
        columns: names of columns to read, or patterns such as ``select/*``.
        encoded: columns of text that are given as dictionaries, which hold what repeats once.

    Returns:
        All rows in the order of file names; metric columns absent from a file are null.

    Raises:
        DamagedFileError: a file is half-written, or was not written by this program, or by a
            later version of it; the message names it.
    """
    found = (_encode(each, encoded) for each in read_files(out, table, name, columns))
    parts = []
    # Combined now and then: a column of each of thousands of files takes more than its numbers.
    while batch := list(itertools.islice(found, FILES_AT_ONCE)):
        parts.append(pa.concat_tables(batch, promote_options="default").combine_chunks())
    if not parts:
        return _encode(SCHEMAS[table].empty_table(), encoded)
    return pa.concat_tables(parts, promote_options="default")


def read_files(
    out: AnyPath, table: TableName, name: str = "*", columns: Collection[str] = ("*",)
) -> Iterator[pa.Table]:
    """The files of one table one by one, where all of it need not be in memory at once.

    Args:
        out: folder of the sweep.
        table: which table.
        name: of the file without its suffix; all of them unless given.
        columns: as of ``read_table``.

    Raises:
        DamagedFileError: as ``read_table``.
    """
    wanted = re.compile("|".join(map(fnmatch.translate, columns)))
    for path, copy in fetch_files(out / table, f"{name}.parquet"):
        yield _read_file(path, copy, table, wanted)


def _read_file(path: AnyPath, copy: Path, table: TableName, wanted: re.Pattern[str]) -> pa.Table:
    try:
        data = copy.read_bytes()
    except OSError as error:  # it may be whole: nobody is asked to delete it
        raise UserError(describe_os_error(error) or f"cannot read {path}: {error}") from None
    try:
        has_checksum = _has_checksum(data)
        # For a small file twice as fast as pq.read_table.
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            schema = file.schema_arrow
            _check_mark(path, table, schema, has_checksum)
            _check_types(table, schema)
            content = file.read(columns=list(filter(wanted.fullmatch, schema.names)))
            content.validate(full=True)
    except UserError:
        raise
    # A damaged file without a checksum may raise errors of pyarrow, of text that cannot be decoded,
    # of numbers that are too large, of memory, and others.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedFileError(
            f"{path} is not a whole Parquet file ({reason}); delete it and run again"
        ) from None
    # Columns that are younger than the file.
    if table in ("trials", "intervals", "shifts"):
        content = _with_absent(content, table, wanted)
    return content.replace_schema_metadata(None)


def _encode(content: pa.Table, names: Collection[str]) -> pa.Table:
    for index, name in enumerate(content.column_names):
        if name in names:
            content = content.set_column(index, name, content[name].dictionary_encode())
    return content


def _with_absent(content: pa.Table, table: TableName, wanted: re.Pattern[str] = _ALL) -> pa.Table:
    """The content with nulls in the columns of its table that it has not."""
    for field in SCHEMAS[table]:
        if field.name not in content.schema.names and wanted.fullmatch(field.name):
            content = content.append_column(field, pa.nulls(content.num_rows, field.type))
    return content


def _has_checksum(data: bytes) -> bool:
    """Compare a file with its checksum, and return whether it has one.

    Raises:
        ValueError: it has another one.
    """
    # The last one, which is in the footer: a column of text may hold anything.
    start = data.rfind(_CHECKSUM) + len(_CHECKSUM)
    written = _DIGEST.match(data, start) if start >= len(_CHECKSUM) else None
    if written is None:
        return False
    digest = hashlib.sha256(memoryview(data)[:start])
    digest.update(_ZEROS)
    digest.update(memoryview(data)[written.end() :])
    if digest.hexdigest().encode() != written[0]:
        raise ValueError("it was changed after it was written: its checksum differs")
    return True


def _check_mark(path: AnyPath, table: TableName, schema: pa.Schema, has_checksum: bool) -> None:
    mark = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    if mark.get("table") != table:
        raise DamagedFileError(f"{path} is not a {table} file of tune-calib; move it elsewhere")
    # A later program may have given a column another meaning; earlier files lack columns at most.
    if mark["version"] > SCHEMA_VERSION:
        raise DamagedFileError(f"{path} has schema {mark['version']}; update tune-calib to read it")
    if set(mark) - {"table", "version"} and not has_checksum:
        raise ValueError("its checksum is missing")


def _check_types(table: TableName, schema: pa.Schema) -> None:
    """Refuse columns of another type than that of their table, which readers rely on.

    Raises:
        ValueError: there is one.
    """
    for field in schema:
        expected = field.type
        if field.name in SCHEMAS[table].names:
            expected = SCHEMAS[table].field(field.name).type
        elif is_metric_column(field.name):
            expected = pa.float64()
        if field.type != expected:
            raise ValueError(f"its column {field.name} is of {field.type}, not of {expected}")
