"""Warm starts of a search from earlier ones: rows of equal trials, and points to try first.

What is taken is stored in the folder of the search, in ``reused/CONTENT``, so that it does not
depend on the earlier folders any more. The hash of the content is part of its identity.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.search.load import SearchResults, load_search
from tune_calib.errors import UserError
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.results.manifests import ReusedRecord
from tune_calib.results.tables import NUMBERS, read_table
from tune_calib.spec.names import REUSED
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.tuning.reuse import COLUMNS, Copies, copy_tables
from tune_calib.tuning.search.definition import SearchDefinition, SuggestionResult

BEST = 5  # points of an earlier search that a new one tries first
Reusable = Mapping[str, tuple[AnyPath, str | None]]
"""Rows of earlier searches by spec hash: the folder and the plug-ins of each."""

_OF_TRIALS = ("seeds", "given", "defaults", "recipe", "own_recipes")


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
        pairs |= {name: (old.get(name), new.get(name)) for name in _OF_TRIALS}
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
    return ReusedRecord(search=search.manifest.search, content=_hash_content(rows), points=points)


def _list_rows(folder: AnyPath) -> list[Mapping[str, Any]]:
    """List the rows of a folder that can be taken, with what identifies their content."""
    columns = ("spec_hash", "status", "numbers", "select/*")
    rows = read_table(folder, "trials", columns=columns).sort_by("spec_hash").to_pylist()
    return [row for row in rows if row["numbers"] == NUMBERS]


def _hash_content(rows: Sequence[Mapping[str, Any]]) -> str:
    return hash_text(json.dumps(rows, sort_keys=True))[:16]


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
    if _hash_content(rows) != record.content:
        raise UserError(f"{folder} has changed meanwhile; repeat the command")
    copy_tables(folder, [row["spec_hash"] for row in rows], target, "all")


def find_reusable(definition: SearchDefinition, out: AnyPath, copies: Copies) -> Reusable:
    """Find the stored rows, of equal trials that of the search named first.

    Raises:
        UserError: They are of another copy of the data.
    """
    reusable: dict[str, tuple[AnyPath, str | None]] = {}
    for record in definition.reuse:
        folder = out / REUSED / record.content
        rows = read_table(folder, "trials", columns=("spec_hash", "plugins", *COLUMNS))
        for row in rows.to_pylist():
            if row["data_digest"] is not None or row["data"] not in copies.digests:
                copies.refuse_copy(row, folder)
                reusable.setdefault(row["spec_hash"], (folder, row["plugins"]))
    return reusable
