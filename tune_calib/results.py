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
import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.columns import COLUMNS, TableName
from tune_calib.errors import DamagedFileError, UserError, way_out
from tune_calib.names import METRICS
from tune_calib.places import Place, RemotePlace, files

SCHEMA_VERSION = 1
# Raise it when a trial of the same spec gets other numbers: rows of two versions are not mixed.
# Rows without it are of version 1.
NUMBERS = 1
_KEY = b"tune_calib"

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
    return schema.with_metadata(_mark(table))


def _mark(table: TableName) -> dict[bytes, bytes]:
    return {_KEY: json.dumps({"table": table, "version": SCHEMA_VERSION}).encode()}


def atomic_write(path: Place, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, also after a crash.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    if isinstance(path, RemotePlace):
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
    out: Place,
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
        _write_file(out, name, "samples", samples.replace_schema_metadata(_mark("samples")))
    # trials last, because its row says that the trial is done: what dies before is run again and
    # overwrites the others.
    order: tuple[TableName, ...] = ("curves", "bins", "trials")
    for table in order:
        rows = tables.get(table, [])
        _write_file(out, name, table, pa.Table.from_pylist(rows, schema=_schema(table, rows)))


def write_table(out: Place, table: TableName, name: str, content: pa.Table) -> None:
    """Write a file of a table that stands beside the trials; columns that it lacks are null.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    whole = _with_absent(content, table).select(SCHEMAS[table].names).cast(SCHEMAS[table])
    _write_file(out, name, table, whole.replace_schema_metadata(_mark(table)))


def _write_file(out: Place, name: str, table: TableName, content: pa.Table) -> None:
    # In memory first, so that a disk and an object store get the same single write.
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink, compression="zstd")
    atomic_write(out / table / f"{name}.parquet", sink.getvalue().to_pybytes())


def read_table(
    out: Place, table: TableName, name: str = "*", keep: Callable[[str], bool] | None = None
) -> pa.Table:
    """Read one table of a sweep.

    Args:
        out: folder of the sweep.
        table: which table.
        name: file name without suffix, to read one Ray trial alone.
        keep: which columns to read; all unless given.

    Returns:
        All rows in the order of file names; metric columns absent from a file are null.

    Raises:
        DamagedFileError: a file is half-written, or was not written by this program, or by a
            later version of it; the message names it.
    """
    tables = list(read_files(out, table, name, keep))
    if not tables:
        return SCHEMAS[table].empty_table()
    return pa.concat_tables(tables, promote_options="default")


def read_files(
    out: Place, table: TableName, name: str = "*", keep: Callable[[str], bool] | None = None
) -> Iterator[pa.Table]:
    """The files of one table one by one, where all of it need not be in memory at once.

    Args:
        out: folder of the sweep.
        table: which table.
        name: of the file without its suffix; all of them unless given.
        keep: which columns to read; all unless given.

    Raises:
        DamagedFileError: as ``read_table``.
    """
    for path, copy in files(out / table, f"{name}.parquet"):
        yield _read_file(path, copy, table, keep)


def _read_file(
    path: Place, copy: Path, table: TableName, keep: Callable[[str], bool] | None
) -> pa.Table:
    try:
        # For a small file twice as fast as pq.read_table.
        with pq.ParquetFile(copy) as file:
            schema = file.schema_arrow
            _check_mark(path, table, schema)
            content = file.read(columns=[n for n in schema.names if keep is None or keep(n)])
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DamagedFileError(
            f"{path} is not a whole Parquet file ({reason}); delete it and run again"
        ) from None
    # Columns that are younger than the file.
    if table in ("trials", "intervals", "shifts"):
        content = _with_absent(content, table, keep)
    return content.replace_schema_metadata(None)


def _with_absent(
    content: pa.Table, table: TableName, keep: Callable[[str], bool] | None = None
) -> pa.Table:
    """The content with nulls in the columns of its table that it has not."""
    for field in SCHEMAS[table]:
        if field.name not in content.schema.names and (keep is None or keep(field.name)):
            content = content.append_column(field, pa.nulls(content.num_rows, field.type))
    return content


def _check_mark(path: Place, table: TableName, schema: pa.Schema) -> None:
    mark = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    if mark.get("table") != table:
        raise DamagedFileError(f"{path} is not a {table} file of tune-calib; move it elsewhere")
    # A later program may have given a column another meaning; earlier files lack columns at most.
    if mark["version"] > SCHEMA_VERSION:
        raise DamagedFileError(f"{path} has schema {mark['version']}; update tune-calib to read it")
