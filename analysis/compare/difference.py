"""Compare two runs: rungs of the same name with matched seeds, and the settings that differ."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from analysis.compare.decision import decide_runs, describe_rules
from analysis.compare.gather import Matched, over_seeds
from analysis.compare.hypotheses import MIN_PAIRS, compare_pairs
from analysis.load import Run
from analysis.tables.latex import label_of
from analysis.tables.render import View, json_records
from analysis.tables.table import Table
from analysis.text import Cell, full_stops, records_of
from analysis.tidy import by_rung, check_metric, find_split, planned_trials
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS, column


def difference(
    first: Run, second: Run, metrics: Sequence[str] = (), split: str | None = None,
    margin: float | None = None,
) -> View:  # fmt: skip
    if margin is not None and len(metrics) != 1:
        raise UserError("`margin` applies to a single `metric`, whose unit it has")
    shared = _shared_rungs(first, second)
    rows, rules, remarks = list[dict[str, object]](), list[str](), list[str]()
    for metric in dict.fromkeys(metrics or ("accuracy", "ece", "nll")):
        check_metric(metric)
        common_split = find_split(first, metric, split)
        a, b = over_seeds(first, metric, common_split), over_seeds(second, metric, common_split)
        if (unit := a.unit) != b.unit:
            raise UserError(
                f"the trials cannot be matched: a block of A is one {unit}, and a block of B one "
                f"{b.unit}; run both with the same kind of seeds, for example `seeds`"
            )
        pairs = {label: _pairs(label, a, b) for label in shared}
        changes = {label: (pair["b"] - pair["a"]).to_numpy() for label, pair in pairs.items()}
        name = column(common_split, metric)
        decisions = decide_runs(first, second, changes, name, margin)
        for label, decision in zip(shared, decisions, strict=True):
            means = {"first": pairs[label]["a"].mean(), "second": pairs[label]["b"].mean()}
            test = compare_pairs(metric, pairs[label], "t") | {"decision": decision.outcome}
            if a.why_no_test or b.why_no_test:
                test |= {"low": decision.low, "high": decision.high, "p": decision.p}
            rows.append({"rung": label, "metric": metric, **means, **test})
        if lines := describe_rules(decisions):
            rules.append(f"Decisions on {METRICS[metric].title}: {'; '.join(lines)}")
        remarks += [*map("A: {}".format, a.notes), *map("B: {}".format, b.notes)]
    table = pd.DataFrame(rows).drop(columns=["p", "statement"])
    if not table["pairs"].any():
        folders = f"{first.out} and {second.out}"
        raise UserError(f"no seed has a number in both {folders}; run both with the same seeds")
    columns = {"first": _settings(first, shared), "second": _settings(second, shared)}
    settings = pd.DataFrame(columns).fillna("-").rename_axis("setting").reset_index()
    changed = settings[settings["first"] != settings["second"]]
    lines = [
        f"A: {first.out} ({first.manifest.title}; {first.manifest.setting})",
        f"B: {second.out} ({second.manifest.title}; {second.manifest.setting})",
        f"A pair is a {unit}; means are over the pairs",
        f"Intervals: Student's, over {MIN_PAIRS} or more pairs, not corrected for their number",
        *rules,
    ]
    if changed.empty:
        lines.append(f"The {first.row_name}s of both runs have the same settings")
    lines += [*_describe_overlap(first, second, shared), *dict.fromkeys(remarks)]
    return _view(table, changed, full_stops(lines), first.row_name)


def _shared_rungs(first: Run, second: Run) -> list[str]:
    if str(first.out) == str(second.out):
        raise UserError(f"{first.out} is given twice; name two runs")
    # With one network a block is a head seed, which only concerns that network.
    seeds, other_seeds = first.manifest.network_seeds, second.manifest.network_seeds
    if len(seeds) == len(other_seeds) == 1 and seeds != other_seeds:
        raise UserError(
            f"{first.out} has network seed {seeds[0]} and {second.out} has {other_seeds[0]}, so no "
            "trials can be matched; run one of them with the seeds of the other"
        )
    shared = [rung.label for rung in first.rungs if rung.label in second.labels.values()]
    if not shared:
        raise UserError(
            f"no {first.row_name} has the same name in both: {first.out} has "
            f"{', '.join(first.labels.values())}; {second.out} has "
            f"{', '.join(second.labels.values())}"
        )
    return shared


def _pairs(label: str, first: Matched, second: Matched) -> pd.DataFrame:
    pairs = pd.concat([second.values[label], first.values[label]], axis=1, keys=["b", "a"])
    pairs = pairs.astype(float).dropna()
    if label in first.fixed and label in second.fixed:
        pairs = pairs[:1]  # one trial is repeated in every block
    return pairs


def _describe_overlap(first: Run, second: Run, shared: Sequence[str]) -> list[str]:
    lines = []
    for name, run in (("A", first), ("B", second)):
        if others := [label for label in run.labels.values() if label not in shared]:
            lines.append(f"Only in {name}: {', '.join(others)}")
    hashes = ({trial.spec_hash for trial in run.manifest.planned} for run in (first, second))
    if count := len(set.intersection(*hashes)):
        lines.append(f"Trials with equal settings and seeds in both: {count}")
    return lines


def _settings(run: Run, shared: Sequence[str]) -> dict[Any, str]:
    rows = planned_trials(run).dropna(subset="data")
    rows = by_rung(rows[rows["method"].isin(shared)], run.labels)
    suffixes = rows["rungs"].map(lambda names: "" if names == "all" else f" ({names})")
    texts = (rows["value"].map(str) + suffixes).groupby(rows["setting"], sort=False)
    return texts.agg(lambda values: "; ".join(sorted(values))).to_dict()


def _view(table: pd.DataFrame, changed: pd.DataFrame, notes: list[str], row_name: str) -> View:
    metrics, number = table["metric"], partial(Cell.number, signed=True)
    columns = {
        row_name: map(Cell, table["rung"]),
        "metric": [Cell(METRICS[metric].head) for metric in metrics],
        "A": map(Cell.number, metrics, table["first"]),
        "B": map(Cell.number, metrics, table["second"]),
        "B - A": map(number, metrics, table["difference"]),
        "95 % interval": map(partial(Cell.span, signed=True), metrics, table["low"], table["high"]),
        "pairs": map(Cell.of, table["pairs"]),
        "B better in": map(Cell.of, table["better"]),
        "decision on B": map(Cell, table["decision"]),
    }
    settings = {
        "setting": map(Cell, changed["setting"]),
        "A": map(Cell, changed["first"]),
        "B": map(Cell, changed["second"]),
    }
    label = label_of("diff", *table["metric"].unique())
    tables = [
        Table("differences", "\n".join(notes), records_of(columns), label=label, is_main=True),
        Table("settings", "Settings that differ.", records_of(settings), label=f"{label}-settings"),
    ]
    content = {"differences": json_records(table), "settings": json_records(changed)}
    shown = [part for part in tables if part.records]
    return View(shown, content | {"notes": notes}, table, notes)
