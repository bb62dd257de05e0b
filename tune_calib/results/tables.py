"""The result tables: versioned Parquet files, written atomically and read strictly.

Each Ray trial writes one file for each table of ``columns`` that it has rows for. The ``trials``
file is written last: a trial is done when its row is on disk.
"""

import fnmatch
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.hashes import hash_bytes
from tune_calib.files.paths import AnyPath, atomic_write, fetch_files
from tune_calib.progress import report_progress
from tune_calib.results.columns import COLUMNS, TableName
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import SLOTS

SCHEMA_VERSION = 1
FILES_AT_ONCE = 64
# Raise it when a trial with the same spec gets other numbers: rows of two versions are not mixed.
# Rows without it have version 1.
NUMBERS = 2
_KEY = b"tune_calib"

# The checksum in the footer covers all bytes of the file, with zeros in its own place.
_CHECKSUM = b"tune_calib sha256:"
_ZEROS = b"0" * 64
_ALL = re.compile(".*")
_DIGEST = re.compile(rb"[0-9a-f]{64}")

SCHEMAS: dict[TableName, pa.Schema] = {}
for _table, _columns in COLUMNS.items():
    SCHEMAS[_table] = pa.schema([(name, column.type) for name, column in _columns.items()])


def read_slots(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a row by slot."""
    return {slot: json.loads(row[slot]) for slot in SLOTS if row[slot]}


def is_metric_column(name: str) -> bool:
    """Return whether a column is ``<split>/<metric>`` with a metric of ``METRICS``."""
    return "/" in name and name.rpartition("/")[2] in METRICS


def _schema(table: TableName, rows: list[dict[str, Any]]) -> pa.Schema:
    schema = SCHEMAS[table]
    if table == "trials":
        extra = sorted(set().union(*rows).difference(schema.names))
        foreign = [name for name in extra if not is_metric_column(name)]
        if foreign:
            raise ValueError(f"columns {foreign} are neither in the schema nor metrics")
        for name in extra:
            schema = schema.append(pa.field(name, pa.float64()))
    return schema


def write_results(
    out: AnyPath,
    name: str,
    tables: dict[TableName, list[dict[str, Any]]],
    samples: pa.Table | None = None,
) -> None:
    """Write the files of one Ray trial, ``trials`` last; the same name overwrites.

    The rows of ``samples`` are too many for Python; an empty table is not written.
    """
    if samples is not None and samples.num_rows:
        write_file(out, name, "samples", samples)
    # A trial without a row is run again and overwrites the other files.
    order: tuple[TableName, ...] = ("curves", "bins", "trials")
    for table in order:
        rows = tables.get(table, [])
        write_file(out, name, table, pa.Table.from_pylist(rows, schema=_schema(table, rows)))


def write_table(out: AnyPath, table: TableName, name: str, content: pa.Table) -> None:
    """Write a file of one table; columns that the content lacks are null."""
    schema = SCHEMAS[table]
    for field in schema:
        if field.name not in content.schema.names:
            content = content.append_column(field, pa.nulls(content.num_rows, field.type))
    write_file(out, name, table, content.select(schema.names).cast(schema))


def write_file(
    out: AnyPath, name: str, table: TableName, content: pa.Table, level: int | None = None
) -> None:
    """Write a file of one table unchanged, with checksums of its pages and of its bytes."""
    mark = {"table": table, "version": SCHEMA_VERSION, "checksum": "sha256"}
    content = content.replace_schema_metadata({_KEY: json.dumps(mark).encode()})
    # In memory first, so that a disk and an object store get the same single write.
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, content.schema, compression="zstd", compression_level=level, write_page_checksum=True
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"tune_calib_checksum": _CHECKSUM + _ZEROS})
    data = bytearray(sink.getvalue())
    start = data.rindex(_CHECKSUM) + len(_CHECKSUM)
    data[start : start + len(_ZEROS)] = hash_bytes(data).encode()
    atomic_write(out / table / f"{name}.parquet", bytes(data))


def read_table(
    out: AnyPath,
    table: TableName,
    name: str = "*",
    columns: Collection[str] = ("*",),
    encoded: Collection[str] = (),
) -> pa.Table:
    """Read one table of a folder, or the file of one Ray trial, in the order of file names.

    ``columns`` are names or patterns such as ``select/*``; those in ``encoded`` are returned as
    dictionaries, which store a repeated text once. A metric is null where a file lacks it.
    """
    wanted = re.compile("|".join(map(fnmatch.translate, columns)))
    files = fetch_files(out / table, f"{name}.parquet")
    parts = []

    def read(file: tuple[AnyPath, Path]) -> pa.Table:
        return _encode(_read_file(*file, table, wanted), encoded)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read_all = pool.map if len(files) > 1 else map
        # Combined now and then: thousands of chunks per column need more memory than their numbers.
        for first in range(0, len(files), FILES_AT_ONCE):
            if first:
                report_progress(f"reading {table}", first, len(files))
            batch = list(read_all(read, files[first : first + FILES_AT_ONCE]))
            parts.append(pa.concat_tables(batch, promote_options="default").combine_chunks())
    if not parts:
        return _encode(SCHEMAS[table].empty_table(), encoded)
    content = pa.concat_tables(parts, promote_options="default")
    if table == "trials" and {"spec_hash", "status"} <= {*content.column_names}:
        _refuse_contradictions(out, content)
    return content


def _refuse_contradictions(out: AnyPath, trials: pa.Table) -> None:
    if len(trials["spec_hash"].unique()) == len(trials):
        return
    # Scalars of pyarrow would import pandas.
    metrics = filter(is_metric_column, trials.column_names)
    rows = trials.select(["spec_hash", "status", *metrics]).to_pylist()
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["status"] == "done" and not are_equal(row, first.setdefault(row["spec_hash"], row)):
            places = []
            for path, _ in fetch_files(out / "trials", "*.parquet"):
                part = read_table(out, "trials", path.name.removesuffix(".parquet"), ["spec_hash"])
                if row["spec_hash"] in part["spec_hash"].to_pylist():
                    places.append(str(path))
            raise contradiction(row["spec_hash"], places)


def contradiction(spec_hash: str, places: Iterable[object]) -> UserError:
    """Return the error for a trial that has different numbers in some files or folders."""
    return UserError(
        f"trial {spec_hash} has different numbers in {' and '.join(map(str, places))}; keep those "
        "of one run, and move or leave out the others"
    )


def are_equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two rows of a trial have the same values of the metrics that both have."""
    for name in filter(is_metric_column, first.keys() & second.keys()):
        a, b = first[name], second[name]
        are_nan = a != a and b != b
        if a != b and None not in (a, b) and not are_nan:
            return False
    return True


def read_files(out: AnyPath, table: TableName) -> Iterator[pa.Table]:
    """Yield the files of a table one by one, for tables that do not fit into memory."""
    for path, copy in fetch_files(out / table, "*.parquet"):
        yield _read_file(path, copy, table)


def _read_file(
    path: AnyPath, copy: Path, table: TableName, wanted: re.Pattern[str] = _ALL
) -> pa.Table:
    return _parse_file(copy.read_bytes(), path, table, wanted)


def _parse_file(data: bytes, path: AnyPath, table: TableName, wanted: re.Pattern[str]) -> pa.Table:
    try:
        has_checksum = _has_checksum(data)
        # For a small file, this is twice as fast as pq.read_table.
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            schema = file.schema_arrow
            _check_mark(path, table, schema, has_checksum)
            _check_columns(table, schema.remove_metadata())
            # In addition to our own threads, those of pyarrow gain nothing.
            names = list(filter(wanted.fullmatch, schema.names))
            content = file.read(columns=names, use_threads=False)
            content.validate(full=True)
        for name, column in COLUMNS[table].items():
            if column.is_later and name not in schema.names and wanted.fullmatch(name):
                content = content.append_column(name, pa.nulls(content.num_rows, column.type))
    except UserError:
        raise
    # A damaged or foreign file may raise errors of pyarrow, of text that cannot be decoded, of
    # numbers that are too large, of memory, and others.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        files = "it"
        if table in ("curves", "bins", "samples"):
            # Only a trial without a row is repeated.
            files = f"it and {path.parent.parent / 'trials' / path.name}"
        raise DamagedFileError(
            f"{path} is not a complete Parquet file ({reason}); delete {files} and run again"
        ) from None
    return content.replace_schema_metadata(None)


def _encode(content: pa.Table, names: Collection[str]) -> pa.Table:
    for index, name in enumerate(content.column_names):
        if name in names:
            content = content.set_column(index, name, content[name].dictionary_encode())
    return content


def _has_checksum(data: bytes) -> bool:
    """Compare a file with its checksum; return whether it has one, which a foreign file lacks."""
    # The last one, which is in the footer: a text column may contain anything.
    start = data.rfind(_CHECKSUM) + len(_CHECKSUM)
    written = _DIGEST.match(data, start)
    if start < len(_CHECKSUM) or written is None:
        return False
    view = memoryview(data)
    if hash_bytes(view[:start], _ZEROS, view[written.end() :]).encode() != written[0]:
        raise ValueError("it was changed after it was written: its checksum differs")
    return True


def _check_mark(path: AnyPath, table: TableName, schema: pa.Schema, has_checksum: bool) -> None:
    mark = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    if mark.get("table") != table:
        raise DamagedFileError(f"{path} is not a {table} file of tune-calib; move it elsewhere")
    # A later program may have changed the meaning of a column.
    if mark["version"] > SCHEMA_VERSION:
        raise DamagedFileError(f"{path} has schema {mark['version']}; update tune-calib to read it")
    if not has_checksum:
        raise ValueError("its checksum is missing")


@lru_cache(maxsize=16)  # the files of a folder have few schemas
def _check_columns(table: TableName, schema: pa.Schema) -> None:
    needed = {name for name, column in COLUMNS[table].items() if not column.is_later}
    if missing := needed.difference(schema.names):
        raise ValueError(f"it lacks the columns {sorted(missing)}")
    for field in schema:
        expected = field.type
        if field.name in SCHEMAS[table].names:
            expected = SCHEMAS[table].field(field.name).type
        elif is_metric_column(field.name):
            expected = pa.float64()
        if field.type != expected:
            raise ValueError(f"its column {field.name} has type {field.type}, not {expected}")
