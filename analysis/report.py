"""Reports and status of runs; an up-to-date report is printed without loading pandas."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from analysis.tables.render import from_plain, to_plain
from analysis.tables.table import Table
from analysis.text import Cell, by_status, format_counts
from tune_calib.console import Part, Text
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath, folder_to_fill
from tune_calib.results import digests
from tune_calib.results.folders import LOST, read_run_manifest
from tune_calib.results.manifests import VERSION, ReportRecord
from tune_calib.results.tables import read_table
from tune_calib.text import format_count, option_words


def write_report(
    out: AnyPath,
    published: str | None = None,
    test: str | None = None,
    regime: bool = False,
    metrics: Sequence[str] = (),
    intervals: bool = False,
) -> str:
    """Write the report of a run unless it is up to date, and return the text to print."""
    shown = tuple(dict.fromkeys(metrics))
    pairs: list[tuple[str, Any]] = [("published", published), ("test", test), ("regime", regime)]
    pairs += [*zip(repeat("metric"), shown), ("intervals", intervals)]
    words = option_words(pair for pair in pairs if pair[1])

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Imported here, since an up-to-date report needs neither pandas nor matplotlib.
        from analysis.ladder.files import load_run, write_files

        run = load_run(out, published, regime, shown, intervals)
        return write_files(run, test, words, folder)

    return _renew(out, words, write)


def write_search_report(out: AnyPath) -> str:
    """Write the report of a search unless it is up to date, and return the text to print."""

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        from analysis.search.files import write_files

        return write_files(out, folder)

    return _renew(out, [], write)


def _renew(
    out: AnyPath, options: Sequence[str], write: Callable[[Path], tuple[Text, Sequence[str]]]
) -> str:
    """Write the report of a folder unless it is up to date, and return the text to print."""
    # Before the results are read, so that rows added meanwhile make the next report a new one.
    results, program = digests.digest_folder(out), digests.digest_program()
    made_of = None
    if results is not None:
        contents = json.dumps([sorted(results.items()), *options, str(out)])
        made_of = digests.digest_texts(program, contents)
    with folder_to_fill(out) as folder:
        last: ReportRecord | None = None
        with suppress(OSError, DamagedFileError, UserError):
            last = ReportRecord.read(folder)
        if last is not None and last.made_of == made_of:
            # Its files may have been changed, and its text may be damaged.
            last_text = from_plain(last.text)
            is_unchanged = _digest_files(folder, last.files) == last.files
            if last_text is not None and is_unchanged and all(last.files.values()):
                return last_text
        text, files = write(folder)
        if made_of is not None and files:
            plain, sums = to_plain(text), _digest_files(folder, files)
            ReportRecord(version=VERSION, made_of=made_of, text=plain, files=sums).write(folder)
        return text


def _digest_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: digests.digest_file(folder / name) for name in names}


def run_status(out: AnyPath, is_running: bool = False) -> str:
    """Return a table of the trials of each rung by status, and what to do if no driver runs."""
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
    if manifest.is_lost:
        parts.append(LOST)
    if set(totals) == {"done"}:
        parts.append(f"finished; tables, figures and a page: tune-calib report {out}")
    elif not is_running:
        parts.append(f"continue with: {manifest.command}")
    return Text(parts)
