"""Reuse rows of equal trials from other run folders, and never mix two copies of the data.

What a search takes from an earlier one is stored in its own folder, in ``reused/CONTENT``, so that
it does not depend on the earlier folder any more. The hash of the content is part of its identity.

A row with the same spec hash is the same result, whichever ladder or comparison requested it. But a
spec names a data set and not its files: two copies of a data set, such as the archive and a
re-encoded folder of images, give trials with equal hashes and different numbers.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from analysis.search.load import SearchResults, load_search
from tune_calib.data.rules import draw_held_out
from tune_calib.data.splits import Development, load_development
from tune_calib.engine.imports import open_import
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.files.store import Store, artifact_manifest
from tune_calib.results.columns import TableName
from tune_calib.results.manifests import RUN_MANIFEST, ReusedRecord
from tune_calib.results.tables import (
    NUMBERS,
    are_equal,
    contradiction,
    read_files,
    read_table,
    write_results,
    write_table,
)
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import REUSED
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.folder import done, hash_json
from tune_calib.tuning.search.definition import SearchDefinition, SuggestionResult
from tune_calib.tuning.work.worker import plugins_of

SHARED = "shared-"  # begins the names of files with rows from other folders
# Columns of ``trials`` that identify data and version of a row, and all columns for reuse.
COLUMNS = ("data", "dataset", "network_id", "data_digest", "numbers")
_READ = {"spec_hash", "status", "plugins", "select/*", "test/*", *COLUMNS}

BEST = 5  # points of an earlier search that a new one tries first
Reusable = Mapping[str, tuple[AnyPath, str | None]]
"""Rows of earlier searches by spec hash: the folder and the plug-ins of each."""


@dataclass(frozen=True)
class Copies:
    # Of all pixels and labels, regardless of the layout of files, by the canonical JSON of data
    # slots; imports are omitted, as the spec contains their digest.
    digests: Mapping[str, str]
    data_root: Path | None

    @classmethod
    def read(cls, specs: Iterable[TrialSpec], data_root: Path | None, store: Store) -> "Copies":
        """Read the data of a run; damaged files and subsets that are too large are refused."""
        digests: dict[str, str] = {}
        developments: dict[DataSlot, Development] = {}
        for key, spec in {canonical_json(spec.data): spec for spec in specs}.items():
            slot = spec.network_data
            if slot.import_record is not None:
                open_import(artifact_manifest, slot.import_record, store)
                continue
            if slot not in developments:
                developments[slot] = load_development(slot, data_root, store.images)
            development = developments[slot]
            select, calib, image_ids = development.select, development.calib, None
            if select.image_ids is not None and calib.image_ids is not None:
                image_ids = torch.cat([select.image_ids, calib.image_ids])
            labels = select.labels, calib.labels
            draw_held_out(spec.data, spec.is_redrawn, *labels, image_ids=image_ids)
            digests[key] = development.digest
        return cls(digests, data_root)

    def refuse_other(self, out: AnyPath) -> None:
        """Refuse to add rows to a folder with rows of another copy or another version."""
        rows = read_table(out, "trials", columns=COLUMNS).group_by(list(COLUMNS))
        for row in rows.aggregate([]).to_pylist():
            if row["numbers"] != NUMBERS:
                raise UserError(
                    f"`out` {out} contains trials of a version of the program with different "
                    f"numbers (generation {row['numbers'] or 1}, now {NUMBERS}); report still "
                    "reads it, but to continue, name another `out`"
                )
            self.refuse_copy(row, out)

    def refuse_copy(self, row: Mapping[str, Any], out: AnyPath) -> None:
        digest = self.digests.get(row["data"])
        if digest not in (None, row["data_digest"]):
            raise UserError(
                f"{out} contains trials on another copy of {row['dataset']} "
                f"({row['data_digest']}) than that in `data_root` {self.data_root} "
                f"({digest}), and they cannot be mixed: name another `out`, or the "
                "`data_root` of that copy"
            )


def find_rows(
    planned: Iterable[PlannedTrial], out: AnyPath, among: AnyPath | None, copies: Copies
) -> dict[str, AnyPath]:
    """Find rows of missing trials in the run folders ``AMONG/*/*``; return folders by spec hash."""
    if among is None:
        return {}
    finished = done(out)
    missing = {t.spec.hash: plugins_of(t.spec) for t in planned if t.spec.hash not in finished}
    if not missing:
        return {}
    folders: dict[str, AnyPath] = {}
    first_rows: dict[str, Mapping[str, Any]] = {}
    manifests: Iterable[AnyPath] = among.glob(f"*/*/{RUN_MANIFEST}")
    for manifest in sorted(manifests, key=str):
        folder = manifest.parent
        if folder.resolve() == out.resolve():
            continue
        try:
            rows = read_table(folder, "trials", columns=_READ).to_pylist()
        except DamagedFileError:
            continue  # commands on that folder report it
        for row in rows:
            spec_hash = row["spec_hash"]
            if spec_hash not in missing or row["status"] != "done":
                continue
            if row["plugins"] != missing[spec_hash] or row["numbers"] != NUMBERS:
                continue
            if row["data_digest"] is None and row["data"] in copies.digests:
                continue  # its images are unknown
            copies.refuse_copy(row, folder)
            if not are_equal(row, first_rows.setdefault(spec_hash, row)):
                raise contradiction(spec_hash, (folders[spec_hash], folder))
            folders.setdefault(spec_hash, folder)
    return folders


def copy_rows(
    folders: Mapping[str, AnyPath],  # by spec hash
    planned: Sequence[PlannedTrial],
    out: AnyPath,
    sweep: str,
    ladder: str,
    sets: Collection[str] = (),
) -> list[str]:
    """Copy rows and requested extra evaluations; return the name of a file for each folder."""
    names = []
    trials = {trial.spec.hash: trial for trial in planned}
    prefixes = tuple(f"{name}/" for name in sets)
    for folder in dict.fromkeys(folders.values()):
        hashes = [spec_hash for spec_hash in folders if folders[spec_hash] == folder]
        # Named after its content: further trials of that folder get another file.
        name = f"{SHARED}{hash_text(' '.join(sorted(hashes)))[:16]}"
        intervals = read_rows(folder, "intervals", hashes)
        if intervals.num_rows:
            write_table(out, "intervals", name, content=intervals)
        shifts = read_rows(folder, "shifts", hashes)
        # A set may consist of parts, such as the severities of a corruption.
        is_requested = [f"{name}/".startswith(prefixes) for name in shifts["set"].to_pylist()]
        shifts = shifts.filter(pa.array(is_requested, pa.bool_()))
        if shifts.num_rows:
            write_table(out, "shifts", name, content=shifts)
        changes = {}
        for spec_hash in hashes:
            trial = trials[spec_hash]
            labels = {"rung": trial.rung, "rung_label": trial.label}
            changes[spec_hash] = {"sweep": sweep, "ladder": ladder, **labels}
        copy_tables(folder, hashes, out, name, changes)
        names.append(name)
    return names


def copy_tables(
    folder: AnyPath,
    hashes: Sequence[str],
    out: AnyPath,
    name: str,
    changes: Mapping[str, Mapping[str, object]] = MappingProxyType({}),  # by spec hash
) -> None:
    """Copy the results of trials from another folder, with other values in some columns."""
    names: tuple[TableName, ...] = ("trials", "curves", "bins")
    tables = {table: read_rows(folder, table, hashes).to_pylist() for table in names}
    for row in tables["trials"]:
        row |= changes.get(row["spec_hash"], {})
    write_results(out, name, tables, samples=read_rows(folder, "samples", hashes))


def read_rows(folder: AnyPath, table: TableName, hashes: Sequence[str]) -> pa.Table:
    """Read the rows of trials file by file, since all samples may not fit into memory."""
    wanted = pa.array(hashes, pa.string())
    parts = []
    for content in read_files(folder, table):
        part = content.filter(pc.is_in(content["spec_hash"].cast(pa.string()), wanted))
        if part.num_rows:
            parts.append(part)
    if not parts:
        return read_table(folder, table).slice(0, 0)
    return pa.concat_tables(parts, promote_options="default")


def read_earlier(path: str, definition: SearchDefinition) -> ReusedRecord:
    """Read what a search takes from an earlier one; refuse another space or objective."""
    search = load_search(parse_path(path))
    old, new = search.manifest.question.plain(), definition.record.plain()
    space = definition.candidates.space
    settings = {name: setting.plain() for name, setting in space.settings.items()}
    pairs = {
        "method": (old["method"], new["method"]),
        "metric": (old["objective"]["metrics"], new["objective"]["metrics"]),
        "guard": (old["objective"]["guard"], new["objective"]["guard"]),
        "replay": (old.get("replay"), new.get("replay")),  # answers are never taken for results
    }
    for name in [*settings, *(name for name in search.outcome.settings if name not in settings)]:
        pairs[f"the space of {name}"] = search.outcome.settings.get(name), settings.get(name)
    if definition.join:
        for name in ("seeds", "given", "defaults", "recipe", "own_recipes"):
            pairs[name] = old.get(name), new.get(name)
    for name, (earlier, own) in pairs.items():
        if earlier != json.loads(json.dumps(own)):
            raise UserError(
                f"{path} differs in {name} ({json.dumps(earlier)}, here {json.dumps(own)}), so "
                "that it cannot be used",
                "reuse",
            )
    rows = _list_rows(search.out)
    if definition.join:
        hashes = {row["spec_hash"] for row in rows}
        ended = [entry for entry in search.outcome.suggestions if hashes.issuperset(entry.specs)]
        points = [entry.point for entry in ended]
    else:
        points = _list_best(search, definition)
    return ReusedRecord(search=search.manifest.search, content=hash_json(rows), points=points)


def _list_rows(folder: AnyPath) -> list[Mapping[str, Any]]:
    """List the rows of a folder that can be taken, with what identifies their content."""
    columns = ("spec_hash", "status", "numbers", "select/*")
    rows = read_table(folder, "trials", columns=columns).sort_by("spec_hash").to_pylist()
    return [row for row in rows if row["numbers"] == NUMBERS]


def _list_best(search: SearchResults, definition: SearchDefinition) -> list[dict[str, Any]]:
    if SAMPLERS[definition.sampler].tries_grid:
        return []
    objective, results = definition.objective, dict[int, SuggestionResult]()
    means = [search.table(metric).set_index("number")["mean"] for metric in objective.metrics]
    points = {entry.number: entry.point for entry in search.outcome.suggestions if entry.is_within}
    for number in points:
        results[number] = SuggestionResult("done", tuple(mean[number] for mean in means))
    best = sorted(points, key=lambda number: (objective.losses(results[number]), number))[:BEST]
    return [points[number] for number in best]


def store_rows(folder: AnyPath, record: ReusedRecord, out: AnyPath) -> None:
    """Store the rows that a search takes from an earlier one in its own folder, once."""
    target = out / REUSED / record.content
    if (target / "trials" / "all.parquet").exists():  # written last
        return
    rows = _list_rows(folder)
    if hash_json(rows) != record.content:
        raise UserError(f"{folder} has changed meanwhile; repeat the command")
    copy_tables(folder, [row["spec_hash"] for row in rows], target, "all")


def find_reusable(definition: SearchDefinition, out: AnyPath, copies: Copies) -> Reusable:
    """Find the stored rows, of equal trials that of the search named first."""
    reusable: dict[str, tuple[AnyPath, str | None]] = {}
    for record in definition.reuse:
        folder = out / REUSED / record.content
        rows = read_table(folder, "trials", columns=("spec_hash", "plugins", *COLUMNS))
        for row in rows.to_pylist():
            if row["data_digest"] is not None or row["data"] not in copies.digests:
                copies.refuse_copy(row, folder)
                reusable.setdefault(row["spec_hash"], (folder, row["plugins"]))
    return reusable
