"""Reports of runs and searches, and the status of a run, which needs no pandas."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from analysis.tables.table import Table
from analysis.text import Cell, by_status, format_counts
from tune_calib.console import Part, Text
from tune_calib.files.paths import AnyPath, folder_to_fill
from tune_calib.results.folders import read_run_manifest
from tune_calib.results.tables import read_table
from tune_calib.text import format_count, option_words


def write_report(
    out: AnyPath, published: str | None = None, test: str | None = None, regime: bool = False,
    metrics: Sequence[str] = (), intervals: bool = False,
) -> str:  # fmt: skip
    # Imported here, since a status needs neither pandas nor matplotlib.
    from analysis.ladder.files import load_run, write_files

    shown = tuple(dict.fromkeys(metrics))
    pairs: list[tuple[str, Any]] = [("published", published), ("test", test), ("regime", regime)]
    pairs += [*(("metric", metric) for metric in shown), ("intervals", intervals)]
    words = option_words(pair for pair in pairs if pair[1])
    run = load_run(out, published, regime, shown, intervals)
    with folder_to_fill(out) as folder:
        return write_files(run, test, words, folder)


def write_search_report(out: AnyPath) -> str:
    from analysis.search.files import write_files

    with folder_to_fill(out) as folder:
        return write_files(out, folder)


def run_status(out: AnyPath, is_running: bool = False) -> str:
    manifest = read_run_manifest(out)
    rows = read_table(out, "trials", columns=["spec_hash", "status"])
    ended: dict[str, str] = {}
    for row in rows.to_pylist():
        # A trial that was run again has two rows.
        if row["status"] == "done" or row["spec_hash"] not in ended:
            ended[row["spec_hash"]] = row["status"]
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for entry in manifest.planned:
        counts[entry.rung][ended.get(entry.spec_hash, "missing")] += 1
    totals = by_status(sum(counts.values(), Counter[str]()))
    records = []
    for rung in manifest.rungs:
        of_rung = counts[rung.index]
        record = {manifest.row_name: Cell(rung.label), "planned": Cell.of(of_rung.total())}
        records.append(record | {name: Cell.of(of_rung[name]) for name in totals})
    planned = format_count(len(manifest.planned), "trial")
    caption = f"{out}: {planned} planned: {format_counts(totals)}"
    parts: list[Part] = [Table("status", caption, records, is_main=True)]
    if set(totals) == {"done"}:
        parts.append(f"finished; tables, figures and a page: tune-calib report {out}")
    elif not is_running:
        parts.append(f"continue with: {manifest.command}")
    return Text(parts)
