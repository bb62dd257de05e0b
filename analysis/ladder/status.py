"""The status of a sweep from its manifest and the column of statuses, without pandas."""

from collections import Counter

from analysis.tables.table import Table
from analysis.text import Cell, cell
from tune_calib.console import Text
from tune_calib.paths import AnyPath
from tune_calib.results.folders import LOST, read_sweep_manifest
from tune_calib.results.manifests import SweepManifest
from tune_calib.results.tables import read_table
from tune_calib.spec.names import STATUSES
from tune_calib.text import format_count

MISSING = "missing"


def sweep_status(out: AnyPath) -> str:
    """Return a table of how the trials of each rung ended, and the command that continues.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    manifest = read_sweep_manifest(out)
    lost = [LOST] if manifest.is_lost else []
    return Text([status_table(out, manifest), *lost, f"continue with: {manifest.command}"])


def status_table(out: AnyPath, manifest: SweepManifest) -> Table:
    """Count the planned trials of each rung by status; the caption has the totals."""
    rows = read_table(out, "trials", columns=["spec_hash", "status"])
    ended: dict[str, str] = {}
    for key, status in zip(rows["spec_hash"].to_pylist(), rows["status"].to_pylist(), strict=True):
        # A trial that was run again has two rows.
        if status == "done" or key not in ended:
            ended[key] = status
    counts = {rung.index: Counter[str]() for rung in manifest.rungs}
    for entry in manifest.planned:
        counts.setdefault(entry.rung, Counter())[ended.get(entry.spec_hash, MISSING)] += 1
    total = sum(counts.values(), Counter[str]())
    names = [name for name in (*STATUSES, MISSING) if total[name]]
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
