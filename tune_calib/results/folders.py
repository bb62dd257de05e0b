"""Determine what a folder of results contains, from its manifest or, if that is lost, its rows."""

import contextlib
import shlex
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import unseal
from tune_calib.files.paths import AnyPath
from tune_calib.results.manifests import (
    RUN_MANIFEST,
    VERSION,
    PlannedRecord,
    PluginRecord,
    RungRecord,
    RunManifest,
    SearchManifest,
)
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.spec.ladder import LADDERS, Rung
from tune_calib.spec.names import SEARCH_MANIFEST, SEARCH_OUTCOME

LOCK = "lock.json"  # of a reproduced table
LOST = f"{RUN_MANIFEST} is lost or damaged, so trials without a result are not known"

_PLANNED = ["spec_hash", "rung", "network_seed", "head_seed", "split_seed"]
_SHARED = ["ladder", "rung_label", "dataset", "backbone"]


def find_run_manifest(out: AnyPath) -> RunManifest | None:
    """Read ``sweep.json``, or recover it from the rows, with ``is_lost``; None without a row."""
    if (out / RUN_MANIFEST).exists():
        with contextlib.suppress(DamagedFileError):
            return RunManifest.read(out)
    rows = read_table(out, "trials", columns=[*_PLANNED, *_SHARED])
    return _recover_manifest(out, rows) if rows.num_rows else None


def read_run_manifest(out: AnyPath) -> RunManifest:
    """Return the result of ``find_run_manifest``, and refuse a folder where it finds nothing."""
    manifest = find_run_manifest(out)
    if manifest is None:
        raise _lacks_run(out)
    return manifest


def _lacks_run(out: AnyPath) -> UserError:
    path = out / RUN_MANIFEST
    if path.exists():
        return UserError(
            f"{path} is incomplete and there is no result; run the command of the run again"
        )
    return UserError(f"{out} contains no {RUN_MANIFEST}; give the `out` folder of a run")


def has_result_files(out: AnyPath) -> bool:
    """Return whether a folder has CSV files of another program, such as those of CalArena."""
    is_run = is_search(out) or (out / RUN_MANIFEST).exists() or _has_rows(out)
    return not is_run and next(iter(out.glob("*.csv")), None) is not None


def refuse_empty(out: AnyPath) -> None:
    """Refuse a folder with neither a manifest nor a row, before anything is imported."""
    if not is_search(out) and not (out / RUN_MANIFEST).exists() and not _has_rows(out):
        raise _lacks_run(out)


def _has_rows(out: AnyPath) -> bool:
    return next(iter(out.glob("trials/*.parquet")), None) is not None


def read_search_manifest(out: AnyPath) -> SearchManifest:
    """Read ``search.json``; the error about a lost or damaged one says how to restore it."""
    path = out / SEARCH_MANIFEST
    if path.exists():
        try:
            return SearchManifest.read(out)
        except DamagedFileError as error:
            damage = str(error)
    elif is_search(out):
        damage = f"{path} is lost"
    else:
        raise UserError(f"{out} contains no {SEARCH_MANIFEST}; give the `out` folder of a search")
    ladders = _texts(read_table(out, "trials", columns=["ladder"]), "ladder") or ["search"]
    raise DamagedFileError(
        f"{damage}; run the command of the search again (tune-calib {ladders[0]} ... --out {out}): "
        "it restores the file and skips finished trials"
    )


def foreign_search(out: AnyPath, manifest: SearchManifest) -> UserError:
    """Return the error for a manifest that another version of the program wrote."""
    return UserError(
        f"{out / SEARCH_MANIFEST} was written by another version of tune-calib; update tune-calib, "
        f"or search in a new `out` ({manifest.command})"
    )


def is_search(out: AnyPath) -> bool:
    """Return whether a folder contains a search, even if its manifest is lost."""
    if (out / SEARCH_MANIFEST).exists() or (out / SEARCH_OUTCOME).exists():
        return True
    if (out / RUN_MANIFEST).exists():
        return False
    return _has_rows(out) and _has_baseline(read_table(out, "trials", columns=["rung"]))


def find_entries(folder: AnyPath) -> list[AnyPath]:
    """Return the folders of the entries of an experiment file by name; none for a single run."""
    if (folder / RUN_MANIFEST).exists() or is_search(folder):
        return []
    entries = {path.parent for path in folder.glob(f"*/{RUN_MANIFEST}")}
    entries |= {path.parent for path in folder.glob(f"*/{SEARCH_MANIFEST}")}
    # An entry whose manifest is lost is still known by its rows.
    entries |= {path.parent.parent for path in folder.glob("*/trials/*.parquet")}
    return sorted(entries)


def _has_baseline(rows: pa.Table) -> bool:
    """Return whether rows belong to a search, whose baseline is not on a rung of a ladder."""
    return bool(pc.any(pc.less(rows["rung"], 0)).as_py())


def read_identity(out: AnyPath) -> str | None:
    """Return the identity of the request, which all rows share; None without rows."""
    identities = _texts(read_table(out, "trials", columns=["sweep"]), "sweep")
    if len(identities) > 1:
        raise UserError(f"{out} contains results of {len(identities)} runs; move all but one away")
    return next(iter(identities), None)


def _recover_manifest(out: AnyPath, rows: pa.Table) -> RunManifest:
    if _has_baseline(rows):
        raise UserError(f"{out} contains a search, not a ladder; see tune-calib report {out}")
    name = next(iter(_texts(rows, "ladder")), "")
    dataset, *others = _texts(rows, "dataset") + _texts(rows, "backbone")
    planned = {row["spec_hash"]: row for row in rows.select(_PLANNED).to_pylist()}
    labels = dict(zip(rows["rung"].to_pylist(), rows["rung_label"].to_pylist(), strict=True))
    networks = set(map(itemgetter("network_seed"), planned.values()))
    pairs = set(map(itemgetter("network_seed", "head_seed"), planned.values()))
    pairs = {pair for pair in pairs if pair[1] is not None}
    title, command = name.capitalize() or "A run", name
    published: str | None = None
    rungs: dict[str, Rung] = {}
    if name in LADDERS:  # the ladder of a plug-in that is not loaded is unknown here
        ladder = LADDERS[name]
        title, command, published = ladder.title, f"ablate {name}", ladder.published
        rungs = {rung.label: rung for rung in ladder.rungs}
    # The rungs of a comparison are not registered; the first one is its base.
    for index, label in labels.items():
        rungs.setdefault(label, Rung(label, label, kind="variant" if index else "base"))
    return RunManifest(
        version=VERSION,
        sweep=read_identity(out) or "",
        ladder=name,
        title=title,
        command=f"tune-calib {command} --dataset {dataset} ... (the command of this run)",
        dataset=dataset,
        setting=f"{'; '.join([dataset, *others])}; INCOMPLETE: {LOST}",
        published=published,
        rungs=[to_record(index, rungs[labels[index]]) for index in sorted(labels)],
        network_seeds=sorted(networks),
        head_seeds=sorted({head for _, head in pairs} or networks),
        # Rows do not show whether seeds were paired; equal seeds in every pair suggest it.
        paired_seeds=len(pairs) <= 1 or all(network == head for network, head in pairs),
        split_seeds=sorted({row["split_seed"] for row in planned.values()} - {None}),
        planned=[PlannedRecord(**row) for row in planned.values()],
        is_lost=True,
    )


def to_record(index: int, rung: Rung) -> RungRecord:
    """Return the record of a rung."""
    fields = {name: getattr(rung, name) for name in RungRecord.model_fields if name != "index"}
    return RungRecord(index=index, **fields)


def _texts(rows: pa.Table, column: str) -> list[str]:
    return sorted(filter(None, pc.unique(rows[column]).to_pylist()))


def read_lock(out: AnyPath) -> dict[str, Any]:
    """Read ``lock.json`` of a reproduced table; return an empty record if there is none."""
    path = out / LOCK
    if not path.exists():
        return {}
    try:
        lock = unseal(path.read_bytes(), path)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; delete it and repeat the command") from None
    if not isinstance(lock.get("runs", {}), dict):
        raise DamagedFileError(f"{path} is damaged; delete it and repeat the command")
    return lock


def read_plugins(out: AnyPath) -> list[PluginRecord]:
    """Return the plug-ins that a folder's manifest names; none if it is lost."""
    for manifest in (RunManifest, SearchManifest):
        with contextlib.suppress(DamagedFileError, FileNotFoundError, NotADirectoryError):
            return list(manifest.read(out).plugins)
    return []


def describe_unloaded(out: AnyPath, is_run: bool = False) -> str:
    """Return a note on plug-ins that a folder names and that are not loaded; empty without any.

    Results may come from anybody, so a folder never loads them, whatever their path or hash.

    Raises:
        UserError: The folder is to be run, or contains results of another version of a plug-in.
    """
    contents = {plugin.name: plugin.content for plugin in plugins.in_use()}
    missing = [record for record in read_plugins(out) if record.content not in contents.values()]
    for record in missing:
        if record.name in contents:
            raise UserError(
                f"{out} contains results of plug-in {record.name} from before a change "
                f"({record.content}; now it is {contents[record.name]}): run the new one in "
                "another `out`, or give its old text as `plugin`"
            )
    if not missing:
        return ""
    names = f"the plug-in{'s' * (len(missing) > 1)} {', '.join(map(attrgetter('name'), missing))}"
    options = " ".join(f"`plugin` {shlex.quote(record.where)}" for record in missing)
    if is_run:
        raise UserError(
            f"{out} needs {names}, and only code that you name is run: read it, then add {options}"
        )
    return (
        f"{out} is read without {names}: metrics, figures and so on registered there are left out; "
        f"to run the code, add {options}"
    )
