"""Reuse rows of the same trials from other run folders.

A trial is what its spec says, whatever ladder or comparison requests it: a row with the same spec
hash is the same result.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath
from tune_calib.results.columns import TableName
from tune_calib.results.manifests import SWEEP_MANIFEST
from tune_calib.results.tables import NUMBERS, read_files, read_table, write_results, write_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.tuning.copies import COLUMNS, Copies
from tune_calib.tuning.folder import done, is_mended
from tune_calib.tuning.ray.rows import plugins_of

_READ = {"spec_hash", "status", "plugins", "head", "processor", *COLUMNS}


def find_rows(
    planned: Iterable[PlannedTrial],
    out: AnyPath,
    among: AnyPath | None,
    copies: Copies | None = None,
) -> dict[str, AnyPath]:
    """Find the run folders ``AMONG/*/*`` with finished rows of trials that a folder lacks.

    Rows of another plug-in, of a version of the program with other numbers, or of data that
    nobody can identify any more are not used. A forecast reads no copies of the data. Returns the
    folders by spec hash.
    """
    if among is None:
        return {}
    finished = done(out)
    wanted = {t.spec.hash: plugins_of(t.spec) for t in planned if t.spec.hash not in finished}
    folders = [path.parent for path in among.glob(f"*/*/{SWEEP_MANIFEST}")] if wanted else []
    found: dict[str, AnyPath] = {}
    for folder in sorted(folders, key=str):
        if folder.resolve() == out.resolve():
            continue
        try:
            rows = read_table(folder, "trials", columns=_READ).to_pylist()
        except DamagedFileError:
            continue  # commands on that folder report it; here its trials are run again
        for row in rows:
            spec_hash = row["spec_hash"]
            if spec_hash in found or spec_hash not in wanted or row["status"] != "done":
                continue
            is_version = (row["numbers"] or 1) == NUMBERS and not is_mended(row)
            if row["plugins"] != wanted[spec_hash] or not is_version:
                continue
            if copies is None or copies.is_same(row, folder):
                found[spec_hash] = folder
    return found


def copy_rows(
    planned: Sequence[PlannedTrial],
    out: AnyPath,
    among: AnyPath | None,
    sweep: str,
    ladder: str,
    sets: Collection[str],
    copies: Copies,
) -> bool:
    """Copy rows that other folders hold, with the extra evaluations that are requested here.

    The folder is locked. Returns whether anything was copied.
    """
    trials = {trial.spec.hash: trial for trial in planned}
    folders: dict[AnyPath, list[str]] = {}
    for spec_hash, folder in find_rows(planned, out, among, copies).items():
        folders.setdefault(folder, []).append(spec_hash)
    for folder, hashes in folders.items():
        # By its content: further trials of that folder come into a file of their own.
        name = f"shared-{hashlib.sha256(' '.join(sorted(hashes)).encode()).hexdigest()[:16]}"
        _copy_extra(folder, out, name, hashes, sets)
        rows = _read_rows(folder, "trials", hashes).to_pylist()
        for row in rows:
            own = trials[row["spec_hash"]]
            row |= {"sweep": sweep, "ladder": ladder, "rung": own.rung, "rung_label": own.label}
        tables: dict[TableName, list[dict[str, object]]] = {
            "trials": rows,
            "curves": _read_rows(folder, "curves", hashes).to_pylist(),
            "bins": _read_rows(folder, "bins", hashes).to_pylist(),
        }
        write_results(out, name, tables, _read_rows(folder, "samples", hashes))
    return bool(folders)


def _copy_extra(
    folder: AnyPath, out: AnyPath, name: str, hashes: Sequence[str], sets: Collection[str]
) -> None:
    intervals = _read_rows(folder, "intervals", hashes)
    # Earlier versions wrote no draws, which verdicts need: these are computed again.
    drawn = pc.unique(intervals.filter(pc.is_valid(intervals["draws"]))["spec_hash"])
    intervals = intervals.filter(pc.is_in(intervals["spec_hash"], drawn))
    if intervals.num_rows:
        write_table(out, "intervals", name, intervals)
    shifts = _read_rows(folder, "shifts", hashes)
    # A set may have parts, such as the severities of a corruption.
    is_requested = [
        any(each == own or each.startswith(f"{own}/") for own in sets)
        for each in shifts["set"].to_pylist()
    ]
    shifts = shifts.filter(pa.array(is_requested, pa.bool_()))
    if shifts.num_rows:
        write_table(out, "shifts", name, shifts)


def _read_rows(folder: AnyPath, table: TableName, hashes: Sequence[str]) -> pa.Table:
    """Read the rows of some trials file by file, since all samples may not fit into memory."""
    wanted = pa.array(hashes, pa.string())
    parts = [
        part.filter(pc.is_in(part["spec_hash"].cast(pa.string()), wanted))
        for part in read_files(folder, table)
    ]
    parts = [part for part in parts if part.num_rows] or [read_table(folder, table).slice(0, 0)]
    return pa.concat_tables(parts, promote_options="default")
