"""Compare two runs: rungs of the same name with matched seeds, and the settings that differ."""

import json
from collections.abc import Sequence

import pandas as pd

from analysis.compare.gather import Matched, over_seeds
from analysis.compare.hypotheses import MIN_PAIRS, compare_pairs
from analysis.load import Sweep
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import Table
from analysis.text import Cell, full_stops
from analysis.tidy import by_rung, check_metric, check_split, default_split, planned_trials
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS

USUAL = ("accuracy", "ece", "nll")


def difference(
    first: Sweep, second: Sweep, metrics: Sequence[str] = (), split: str | None = None
) -> View:
    """Compare the shared rungs of two runs with matched seeds, and list settings that differ."""
    _refuse(first, second)
    shared = [rung.label for rung in first.rungs if rung.label in second.labels.values()]
    if not shared:
        rungs = [f"{s.out} has {', '.join(s.labels.values())}" for s in (first, second)]
        raise UserError(f"no {first.row_name} has the same name in both: {'; '.join(rungs)}")
    rows: list[dict[str, object]] = []
    remarks: list[str] = []
    unit = ""
    for metric in dict.fromkeys(metrics or USUAL):
        check_metric(metric)
        of_split = check_split(first, metric, split or default_split(first, metric))
        pair = over_seeds(first, metric, of_split), over_seeds(second, metric, of_split)
        unit = pair[0].unit
        if unit != pair[1].unit:
            raise UserError(
                f"the trials cannot be matched: a block of A is one {unit}, and a block of B one "
                f"{pair[1].unit}; run both with the same kind of seeds, for example `seeds`"
            )
        rows += [_row(label, metric, *pair) for label in shared]
        remarks += [f"{name}: {n}" for name, m in zip("AB", pair, strict=True) for n in m.notes]
    table = pd.DataFrame(rows)
    if not table["pairs"].any():
        raise UserError(
            f"no seed has a number in both runs: {first.out} has seeds "
            f"{', '.join(map(str, first.manifest.network_seeds))}, and {second.out} has "
            f"{', '.join(map(str, second.manifest.network_seeds))}; run both with the same seeds"
        )
    a, b = (_settings(sweep, shared) for sweep in (first, second))
    differ = [(n, a.get(n, "-"), b.get(n, "-")) for n in {**a, **b} if a.get(n) != b.get(n)]
    changed = pd.DataFrame(differ, columns=["setting", "first", "second"], dtype=object)
    one, other = (f"{s.out} ({s.manifest.title}; {s.manifest.setting})" for s in (first, second))
    lines = [
        f"A: {one}",
        f"B: {other}",
        f"A pair is a {unit}; means are over the pairs",
        f"Intervals: Student's, over {MIN_PAIRS} or more pairs, not corrected for their number",
        *([] if differ else [f"The {first.row_name}s of both runs have the same settings"]),
        *_describe_overlap(first, second, shared),
        *dict.fromkeys(remarks),
    ]
    return _view(table, changed, full_stops(lines), first.row_name)


def _refuse(first: Sweep, second: Sweep) -> None:
    if str(first.out) == str(second.out):
        raise UserError(f"{first.out} is given twice; name two runs")
    # With one network a block is a head seed, which only concerns that network.
    seeds = [sweep.manifest.network_seeds for sweep in (first, second)]
    if all(len(own) == 1 for own in seeds) and seeds[0] != seeds[1]:
        raise UserError(
            f"{first.out} has network seed {seeds[0][0]} and {second.out} has {seeds[1][0]}, so no "
            "trials can be matched; run one of them with the seeds of the other"
        )


def _row(label: str, metric: str, first: Matched, second: Matched) -> dict[str, object]:
    both = pd.concat([second.values[label], first.values[label]], axis=1, keys=["b", "a"])
    both = both.astype(float).dropna()
    if label in first.fixed and label in second.fixed:
        both = both[:1]  # one trial is repeated in every block
    found = compare_pairs(metric, both, "t")
    return {
        "rung": label,
        "metric": metric,
        "first": both["a"].mean(),
        "second": both["b"].mean(),
        **{name: found[name] for name in ("pairs", "better", "difference", "low", "high")},
    }


def _describe_overlap(first: Sweep, second: Sweep, shared: Sequence[str]) -> list[str]:
    """Describe the rungs that only one of them has, and the trials that both have."""
    lines = []
    for name, sweep in (("A", first), ("B", second)):
        own = [label for label in sweep.labels.values() if label not in shared]
        lines += [f"Only in {name}: {', '.join(own)}"] if own else []
    a, b = ({entry.spec_hash for entry in s.manifest.planned} for s in (first, second))
    if both := len(a & b):
        lines.append(f"Trials with equal settings and seeds in both: {both}")
    return lines


def _settings(sweep: Sweep, shared: Sequence[str]) -> dict[str, str]:
    """Return the values of every setting of the shared rungs, as text."""
    rows = planned_trials(sweep).dropna(subset="data")
    rows = rows[rows["method"].isin(shared)]
    found: dict[str, list[str]] = {}
    for row in by_rung(rows, sweep.labels).to_dict("records"):
        where = "" if row["rungs"] == "all" else f" ({row['rungs']})"
        found.setdefault(row["setting"], []).append(f"{row['value']}{where}")
    return {name: "; ".join(sorted(values)) for name, values in found.items()}


def _view(table: pd.DataFrame, changed: pd.DataFrame, notes: list[str], row_name: str) -> View:
    records = [
        {
            row_name: Cell(row["rung"]),
            "metric": Cell(METRICS[row["metric"]].head),
            "A": Cell.number(row["metric"], row["first"]),
            "B": Cell.number(row["metric"], row["second"]),
            "B - A": Cell.number(row["metric"], row["difference"], signed=True),
            "95 % interval": Cell.span(row["metric"], row["low"], row["high"], signed=True),
            "pairs": Cell.of(row["pairs"]),
            "B better in": Cell.of(row["better"]),
        }
        for row in table.to_dict("records")
    ]
    settings = [
        {"setting": Cell(setting), "A": Cell(first), "B": Cell(second)}
        for setting, first, second in changed.itertuples(index=False)
    ]
    label = label_of("diff", *table["metric"].unique())
    tables = [
        Table("differences", "\n".join(notes), records, label=label, is_main=True),
        Table("settings", "Settings that differ.", settings, label=f"{label}-settings"),
    ]
    content = {
        # Through pandas' JSON, which has null for NaN.
        "differences": json.loads(table.to_json(orient="records")),
        "settings": json.loads(changed.to_json(orient="records")),
        "notes": notes,
    }
    return View([table for table in tables if table.records], content, table, notes)
