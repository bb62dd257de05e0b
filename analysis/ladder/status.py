"""What of a sweep is done, from its manifest and the column of statuses: no table is made."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tune_calib.paths import AnyPath
from tune_calib.results.folders import LOST, no_sweep, sweep_of
from tune_calib.results.tables import read_table
from tune_calib.spec.names import STATUSES
from tune_calib.text import format_count

MISSING = "missing"


def sweep_status(out: AnyPath) -> str:
    """Say what of a sweep is done.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    manifest = sweep_of(out)
    if manifest is None:
        raise no_sweep(out)
    ended = _ended(out)
    told = _told(ended, (entry.spec_hash for entry in manifest.planned))
    lines = [f"{out}: {format_count(len(manifest.planned), 'trial')} planned: {told}"]
    hashes: dict[int, list[str]] = {rung.index: [] for rung in manifest.rungs}
    for entry in manifest.planned:
        hashes.setdefault(entry.rung, []).append(entry.spec_hash)
    lines += [f"  {rung.label}: {_told(ended, hashes[rung.index])}" for rung in manifest.rungs]
    if manifest.is_lost:
        lines.append(LOST)
    return "\n".join([*lines, f"again or go on: {manifest.command}"])


def _ended(out: AnyPath) -> dict[str, str]:
    """Status by spec hash; of a trial that stands in two files, since it was run again, done."""
    rows = read_table(out, "trials", keep=lambda name: name in ("spec_hash", "status"))
    found: dict[str, str] = {}
    for key, status in zip(rows["spec_hash"].to_pylist(), rows["status"].to_pylist(), strict=True):
        if status == "done":
            found[key] = status
        else:
            found.setdefault(key, status)
    return found


def _told(ended: Mapping[str, str], hashes: Iterable[str]) -> str:
    """How some trials ended, e.g. ``3 done, 1 diverged, 1 missing``."""
    counts = Counter(ended.get(each, MISSING) for each in hashes)
    return ", ".join(f"{counts[each]} {each}" for each in (*STATUSES, MISSING) if counts[each])
