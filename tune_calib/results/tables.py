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
from pathlib import Path
from typing import Any

import pyarrow as pa

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import seal_table, unseal_table
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
_ALL = re.compile(".*")

SCHEMAS: dict[TableName, pa.Schema] = {}
for _table, _columns in COLUMNS.items():
    SCHEMAS[_table] = pa.schema([(name, column.type) for name, column in _columns.items()])


def read_slots(row: Mapping[str, Any]) -> dict[str, Any]:
    return {slot: json.loads(row[slot]) for slot in SLOTS if row[slot]}


def is_metric_column(name: str) -> bool:
    return "/" in name and name.rpartition("/")[2] in METRICS


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
        rows, schema = tables.get(table, []), SCHEMAS[table]
        names = set().union(*rows) if table == "trials" else set()
        for column in sorted(names.difference(schema.names)):
            if not is_metric_column(column):
                raise ValueError(f"column {column} is neither in the schema nor a metric")
            schema = schema.append(pa.field(column, pa.float64()))
        write_file(out, name, table, pa.Table.from_pylist(rows, schema=schema))


def write_table(out: AnyPath, table: TableName, name: str, content: pa.Table) -> None:
    """Write a file of one table; columns that the content lacks are null."""
    schema = SCHEMAS[table]
    for field in schema:
        if field.name not in content.schema.names:
            content = content.append_column(field, pa.nulls(content.num_rows, field.type))
    write_file(out, name, table, content.select(schema.names).cast(schema))


def write_file(
    out: AnyPath, name: str, table: TableName, content: pa.Table, **options: Any
) -> None:
    """Write a file of one table unchanged, with checksums; ``options`` are of ParquetWriter."""
    mark = {"table": table, "version": SCHEMA_VERSION, "checksum": "sha256"}
    content = content.replace_schema_metadata({_KEY: json.dumps(mark).encode()})
    # In memory first, so that a disk and an object store get the same single write.
    atomic_write(out / table / f"{name}.parquet", seal_table(content, **options))


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
    return pa.concat_tables(parts, promote_options="default")


def contradiction(spec_hash: str, places: Iterable[object]) -> UserError:
    return UserError(
        f"trial {spec_hash} has different numbers in {' and '.join(map(str, places))}; omit one"
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
    way_out = "delete it and run again"
    if table in ("curves", "bins", "samples"):
        # Only a trial without a row is repeated.
        way_out = f"delete it and {path.parent.parent / 'trials' / path.name} and run again"
    with unseal_table(copy.read_bytes(), path, way_out) as file:
        schema = file.schema_arrow
        mark = json.loads(schema.metadata[_KEY])
        if mark["version"] > SCHEMA_VERSION:  # which may have changed the meaning of a column
            raise UserError(f"{path} has schema {mark['version']}; update tune-calib to read it")
        if mark["table"] != table:
            raise DamagedFileError(f"{path} contains rows of {mark['table']}; {way_out}")
        # In addition to our own threads, those of pyarrow gain nothing.
        names = list(filter(wanted.fullmatch, schema.names))
        content = file.read(columns=names, use_threads=False)
    for name, column in COLUMNS[table].items():
        if column.is_later and name not in schema.names and wanted.fullmatch(name):
            content = content.append_column(name, pa.nulls(content.num_rows, column.type))
    return content.replace_schema_metadata(None)


def _encode(content: pa.Table, names: Collection[str]) -> pa.Table:
    for index, name in enumerate(content.column_names):
        if name in names:
            content = content.set_column(index, name, content[name].dictionary_encode())
    return content
