"""The report and the status of a ladder, made from its folder without pandas where possible."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.page.record import renew
from analysis.tables.table import Table
from analysis.text import Cell, cell
from tune_calib.console import Text
from tune_calib.paths import AnyPath
from tune_calib.results.folders import LOST, read_sweep_manifest
from tune_calib.results.manifests import SweepManifest
from tune_calib.results.tables import read_table
from tune_calib.spec.names import STATUSES
from tune_calib.text import format_count, option_words


def write_report(
    out: AnyPath,
    published: str | None = None,
    test: str | None = None,
    regime: bool = False,
    metrics: Sequence[str] = (),
    intervals: bool = False,
) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a sweep unless they are up to date.

    Returns what to print: the table, what is missing or diverged, the files that were written.
    ``published`` is a table to compare with, e.g. ``fedlas/table1`` (None: the one that the ladder
    follows), ``test`` the paired test of a comparison, ``regime`` adds the columns of the network
    check, ``intervals`` shows intervals over the test samples instead of the spread over seeds.
    """
    shown = tuple(dict.fromkeys(metrics))
    pairs: list[tuple[str, Any]] = [("published", published), ("test", test), ("regime", regime)]
    pairs += [*(("metric", name) for name in shown), ("intervals", intervals)]
    words = option_words((name, value) for name, value in pairs if value)

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Imported here: an up-to-date report needs neither pandas nor matplotlib.
        from analysis.ladder.files import load_sweep, write_files

        sweep = load_sweep(out, published, regime, shown, intervals)
        return write_files(sweep, test, words, folder)

    return renew(out, words, write)


def sweep_status(out: AnyPath) -> str:
    """Return a table of how the trials of each rung ended, and the command that continues."""
    manifest = read_sweep_manifest(out)
    lost = [LOST] if manifest.is_lost else []
    return Text([_status_table(out, manifest), *lost, f"continue with: {manifest.command}"])


def _status_table(out: AnyPath, manifest: SweepManifest) -> Table:
    """Count the planned trials of each rung by status; the caption has the totals."""
    rows = read_table(out, "trials", columns=["spec_hash", "status"])
    ended: dict[str, str] = {}
    for key, status in zip(rows["spec_hash"].to_pylist(), rows["status"].to_pylist(), strict=True):
        # A trial that was run again has two rows.
        if status == "done" or key not in ended:
            ended[key] = status
    counts = {rung.index: Counter[str]() for rung in manifest.rungs}
    for entry in manifest.planned:
        counts.setdefault(entry.rung, Counter())[ended.get(entry.spec_hash, "missing")] += 1
    total = sum(counts.values(), Counter[str]())
    names = [name for name in (*STATUSES, "missing") if total[name]]
    records = [
        {
            "rung": Cell(rung.label),
            "planned": cell(counts[rung.index].total()),
            **{name: cell(counts[rung.index][name]) for name in names},
        }
        for rung in manifest.rungs
    ]
    ends = ", ".join(f"{total[name]} {name}" for name in names)
    caption = f"{out}: {format_count(len(manifest.planned), 'trial')} planned: {ends}"
    return Table("status", caption, records, is_main=True)
