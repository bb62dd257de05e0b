"""Determine what a folder of results contains, from its manifest."""

import shlex
from operator import attrgetter
from typing import Any

import pyarrow.compute as pc

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import unseal
from tune_calib.files.paths import AnyPath
from tune_calib.results.manifests import (
    RUN_MANIFEST,
    PluginRecord,
    RungRecord,
    RunManifest,
    SearchManifest,
)
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.spec.ladder import Rung
from tune_calib.spec.names import SEARCH_MANIFEST, SEARCH_OUTCOME

LOCK = "lock.json"  # of a reproduced table


def read_run_manifest(out: AnyPath) -> RunManifest:
    """Read ``sweep.json``; the error about a lost or damaged one says how to restore it."""
    refuse_empty(out)
    manifest = RunManifest.find(out)
    if manifest is None:
        raise DamagedFileError(
            f"{out / RUN_MANIFEST} is lost or damaged; run the command of the run again"
        )
    return manifest


def has_result_files(out: AnyPath) -> bool:
    """Return whether a folder has CSV files of another program, such as those of CalArena."""
    is_run = is_search(out) or (out / RUN_MANIFEST).exists()
    return not is_run and next(iter(out.glob("*.csv")), None) is not None


def refuse_empty(out: AnyPath) -> None:
    """Refuse a folder with neither a manifest nor a row, before anything is imported."""
    if is_search(out) or (out / RUN_MANIFEST).exists():
        return
    # Rows of trials in a user's own Tuner have no manifest.
    if next(iter(out.glob("trials/*.parquet")), None) is None:
        raise UserError(f"{out} contains no {RUN_MANIFEST}; give the `out` folder of a run")


def read_search_manifest(out: AnyPath) -> SearchManifest:
    """Read ``search.json``; the error about a lost or damaged one says how to restore it."""
    if not is_search(out):
        raise UserError(f"{out} contains no {SEARCH_MANIFEST}; give the `out` folder of a search")
    manifest = SearchManifest.find(out)
    if manifest is None:
        raise DamagedFileError(
            f"{out / SEARCH_MANIFEST} is lost or damaged; run the command of the search again"
        )
    return manifest


def is_search(out: AnyPath) -> bool:
    return (out / SEARCH_MANIFEST).exists() or (out / SEARCH_OUTCOME).exists()


def find_entries(folder: AnyPath) -> list[AnyPath]:
    """Return the folders of the entries of an experiment file by name; none for a single run."""
    if (folder / RUN_MANIFEST).exists() or is_search(folder):
        return []
    entries = {path.parent for path in folder.glob(f"*/{RUN_MANIFEST}")}
    return sorted(entries | {path.parent for path in folder.glob(f"*/{SEARCH_MANIFEST}")})


def read_identity(out: AnyPath) -> str | None:
    """Return the identity of the request, which all rows share; None without rows."""
    rows = read_table(out, "trials", columns=["sweep"])
    identities = list(filter(None, pc.unique(rows["sweep"]).to_pylist()))
    if len(identities) > 1:
        raise UserError(f"{out} contains results of {len(identities)} runs; move all but one away")
    return next(iter(identities), None)


def to_record(index: int, rung: Rung) -> RungRecord:
    return RungRecord(
        index=index,
        label=rung.label,
        ingredient=rung.ingredient,
        published=rung.published,
        kind=rung.kind,
    )


def read_lock(out: AnyPath) -> dict[str, Any]:
    path = out / LOCK
    return unseal(path.read_bytes(), path) if path.exists() else {}


def read_plugins(out: AnyPath) -> list[PluginRecord]:
    """Return the plug-ins that a folder's manifest names; none if it is lost."""
    manifest = RunManifest.find(out) or SearchManifest.find(out)
    return manifest.plugins if manifest else []


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
                f"{out} contains results of plug-in {record.name} from before a change: run the "
                "new one in another `out`, or give its old text as `plugin`"
            )
    if not missing:
        return ""
    names = f"the plug-in{'s' * (len(missing) > 1)} {', '.join(map(attrgetter('name'), missing))}"
    options = " ".join(f"`plugin` {shlex.quote(record.where)}" for record in missing)
    if is_run:
        raise UserError(
            f"{out} needs {names}, and only code that you name is run: read it, then add {options}"
        )
    readable = f"{out} is read without {names} and what is registered there"
    return f"{readable}; to run the code, add {options}"
