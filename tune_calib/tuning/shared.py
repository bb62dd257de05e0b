"""Trials that other folders of results hold already: their rows are taken, and not made again.

A trial is what its spec says, whatever ladder or comparison asks for it: a row with the same spec
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

_TOLD = {"spec_hash", "status", "plugins", "head", "processor", *COLUMNS}


def elsewhere(
    planned: Iterable[PlannedTrial],
    out: AnyPath,
    among: AnyPath | None,
    copies: Copies | None = None,
) -> dict[str, AnyPath]:
    """Where the finished rows of trials lie that a folder lacks.

    Args:
        planned: the trials.
        out: the folder.
        among: its results folders are looked through, ``among/*/*``; none if None.
        copies: the copies of the data that are read now; None in a forecast, which reads none.

    Returns:
        Spec hash to folder; not of trials of another content of a plug-in, of a version of the
        program with other numbers, or of data that nobody can identify any more.

    Raises:
        UserError: a folder holds such a trial on another copy of the data.
    """
    if among is None:
        return {}
    finished = done(out)
    wanted = {t.spec.hash: plugins_of(t.spec) for t in planned if t.spec.hash not in finished}
    found: dict[str, AnyPath] = {}
    for folder in _folders(among, out) if wanted else ():
        try:
            rows = read_table(folder, "trials", keep=_TOLD.__contains__).to_pylist()
        except DamagedFileError:
            continue  # who asks for that folder is told; here its trials are made again
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


def take(
    planned: Sequence[PlannedTrial],
    out: AnyPath,
    among: AnyPath | None,
    sweep: str,
    ladder: str,
    sets: Collection[str],
    copies: Copies,
) -> bool:
    """Take over what lies elsewhere, with the closer looks that are asked for here.

    Args:
        planned: the trials of the folder.
        out: the folder; nobody else writes into it meanwhile.
        among: as of ``elsewhere``.
        sweep: identity of the folder's sweep.
        ladder: its name.
        sets: shift sets that are asked for.
        copies: the copies of the data that are read now.

    Returns:
        Whether anything was taken.

    Raises:
        UserError: as ``elsewhere``.
    """
    trials = {trial.spec.hash: trial for trial in planned}
    folders: dict[AnyPath, list[str]] = {}
    for spec_hash, folder in elsewhere(planned, out, among, copies).items():
        folders.setdefault(folder, []).append(spec_hash)
    for folder, hashes in folders.items():
        # By what it holds: further trials of that folder come into a file of their own.
        name = f"shared-{hashlib.sha256(' '.join(sorted(hashes)).encode()).hexdigest()[:16]}"
        _take_looks(folder, out, name, hashes, sets)
        rows = _of(folder, "trials", hashes).to_pylist()
        for row in rows:
            own = trials[row["spec_hash"]]
            row |= {"sweep": sweep, "ladder": ladder, "rung": own.rung, "rung_label": own.label}
        tables: dict[TableName, list[dict[str, object]]] = {
            "trials": rows,
            "curves": _of(folder, "curves", hashes).to_pylist(),
            "bins": _of(folder, "bins", hashes).to_pylist(),
        }
        write_results(out, name, tables, _of(folder, "samples", hashes))
    return bool(folders)


def _folders(among: AnyPath, out: AnyPath) -> list[AnyPath]:
    """Folders of results, in the order of their names, without the own one."""
    found: list[AnyPath] = [path.parent for path in among.glob(f"*/*/{SWEEP_MANIFEST}")]
    return sorted((f for f in found if f.resolve() != out.resolve()), key=str)


def _take_looks(
    folder: AnyPath, out: AnyPath, name: str, hashes: Sequence[str], sets: Collection[str]
) -> None:
    intervals = _of(folder, "intervals", hashes)
    # Earlier versions kept no draws, which verdicts need: then they are made here.
    drawn = pc.unique(intervals.filter(pc.is_valid(intervals["draws"]))["spec_hash"])
    intervals = intervals.filter(pc.is_in(intervals["spec_hash"], drawn))
    if intervals.num_rows:
        write_table(out, "intervals", name, intervals)
    shifts = _of(folder, "shifts", hashes)
    # A set may have parts, such as the severities of a corruption.
    asked = [
        any(each == own or each.startswith(f"{own}/") for own in sets)
        for each in shifts["set"].to_pylist()
    ]
    shifts = shifts.filter(pa.array(asked, pa.bool_()))
    if shifts.num_rows:
        write_table(out, "shifts", name, shifts)


def _of(folder: AnyPath, table: TableName, hashes: Sequence[str]) -> pa.Table:
    """The rows of some trials; file by file, since samples of all may not fit into memory."""
    wanted = pa.array(hashes, pa.string())
    parts = [
        part.filter(pc.is_in(part["spec_hash"].cast(pa.string()), wanted))
        for part in read_files(folder, table)
    ]
    kept = [part for part in parts if part.num_rows] or [read_table(folder, table).slice(0, 0)]
    return pa.concat_tables(kept, promote_options="default")
