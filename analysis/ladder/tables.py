"""The tables of a ladder or comparison."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.compare.network_check import compute_network_check, known_networks
from analysis.ladder import means
from analysis.ladder.shift_tables import OOD_SHOWN
from analysis.load import Sweep, cached_per_sweep
from analysis.published import titled
from analysis.shifts import FAMILIES
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, MAX_ROWS, Table
from analysis.text import NOTHING, Cell, Record, format_counts, ranked, records_of
from analysis.tidy import by_rung, planned_trials
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import AT_VALUE, BASE, METRICS, column
from tune_calib.spec.names import STATUSES, is_chance, legend

_PAPER = "paper: "  # before the head of a column of published numbers
_STEP = "ΔECE before"  # what a rung of a ladder is about
_FIRST = ("ece", "accuracy", "nll")  # shown first on a narrow screen
_HIDDEN_SPLITS = ("select", "train", BASE)  # used for selection and for the network check


@cached_per_sweep
def ladder(sweep: Sweep) -> Table:
    """Build the main table: mean and spread of every rung, and the published numbers."""
    manifest = sweep.manifest
    keys: list[Any] = means.published_columns(sweep).columns.to_list()
    papers = {_PAPER + titled(key): key for key in keys}
    records = _records(sweep, papers)
    if sweep.row_name == "method":
        records = _best_first(sweep, records)
    groups = {head: ("published ECE (%)" if head in papers else "this run",
                     head.removeprefix(_PAPER)) for head in list(records[0])[1:]}  # fmt: skip
    # A rule before the first control, and before variants after a step.
    kinds = pairwise(rung.kind for rung in sweep.rungs)
    rules = {
        index: f"{kind}s"
        for index, (before, kind) in enumerate(kinds, start=1)
        if (kind == "control" and before != "control") or (kind == "variant" and before == "step")
    }
    first = [METRICS[name].head for name in sweep.shown or _FIRST]
    first.insert(len(sweep.shown) or 1, _STEP)  # behind requested metrics, otherwise behind ECE
    # A step of a ladder is compared with the step of the paper, and a method with the base.
    base = [base_head(sweep)]
    first += [*papers, *base] if sweep.row_name == "rung" else [*base, *papers]
    over = means.mean_over(sweep)
    return Table(
        "ladder",
        f"{manifest.title}. {describe_setting(sweep)}.\nTest split, {over}. {BEST}",
        records,
        rules=rules,
        first=[*first, "trials"],
        groups=groups if papers else {},
        label=label_of(manifest.ladder.split()[0], manifest.dataset),
        is_main=True,
        notes=[f"{compute_network_check(sweep).sentence}.", *notes(sweep)],
        is_one_tabular=True,
        requested=[METRICS[name].head for name in sweep.shown],
    )


def describe_setting(sweep: Sweep) -> str:
    """Shorten the setting to data, network and recipe, e.g. ``Digits; Small CNN, 60 epochs``."""
    manifest = sweep.manifest
    backbones = tuple(map(str, sweep.trials["backbone"].dropna().unique()))
    parts = []
    for part in manifest.setting.split("; "):
        name, *others = re.split(r"(?=\W)", part, maxsplit=1)
        if name in ("heads", "one"):
            continue
        if part.startswith(backbones):
            # Without optimiser and the like, and without the hash of its weights.
            others = ["".join(others).partition(": ")[0].partition(" (weights ")[0]]
        elif name == "recipe" and manifest.recipe and manifest.recipe.told:
            others = [f" {manifest.recipe.told}"]
        elif name == "imported":
            own = manifest.titles.get(name)
            name = "imported data" if own in (None, "Imported") else f"imported {own}"
            others = [re.sub(r"^ \w+", "", "".join(others))]  # without its digest
        parts.append("".join([manifest.titles.get(name, name), *others]))
    return "; ".join(parts)


def notes(sweep: Sweep) -> list[str]:
    """Return the notes below the caption of the main table, in sentences."""
    manifest, counts = sweep.manifest, sweep.counts()
    found = []
    if set(counts) != {"done"}:
        ended = format_counts({status: n for status, n in counts.items() if status != "missing"})
        found.append(f"Trials of all {sweep.row_name}s: {ended}; means are over those done")
    if missing := counts.get("missing"):
        found.append(f"INCOMPLETE: {missing} of {len(manifest.planned)} trials missing")
    found += legend(sweep.flags())
    if sweep.row_name == "rung":
        found.append(f"{_STEP}: change of the mean ECE from the previous rung, in points")
    found.append(f"{base_head(sweep)}: change of the mean ECE from {_describe_base(sweep)}")
    found += filter(None, [equal_rungs(sweep)])
    if sweep.shows_intervals:
        found.append(means.interval_note(sweep))
    if manifest.published:
        found.append(f"Columns 'paper': ECE (%) as printed in {manifest.published}")
    return [f"{line}." for line in found]


@cached_per_sweep
def equal_rungs(sweep: Sweep) -> str:
    """Name the rungs whose trials have equal test metrics for every seed; empty if none."""
    columns = [column("test", metric) for metric in METRICS]
    columns = [name for name in columns if name in sweep.done]
    groups: list[tuple[pd.DataFrame, list[str]]] = []
    for rung in sweep.rungs:
        rows = sweep.of_rung(rung.index).set_index(["network_seed", "head_seed"]).sort_index()
        rows = rows[columns].astype(float)
        if rows.isna().all(axis=None):
            continue
        for first, labels in groups:
            # Rows of earlier versions may lack a metric; the last bit of a float is no difference.
            if rows.index.equals(first.index) and not ((rows - first).abs() > 1e-12).any(axis=None):
                labels.append(sweep.label(rung))
                break
        else:
            groups.append((rows, [sweep.label(rung)]))
    equal = "; ".join(" = ".join(labels) for _, labels in groups if len(labels) > 1)
    if not equal:
        return ""
    count = sum(len(labels) for _, labels in groups)
    return f"Equal in every trial: {equal}, so {len(groups)} of {count} {sweep.row_name}s differ"


def base_head(sweep: Sweep) -> str:
    """Return the head of the column of changes from the base, which a comparison may lack."""
    return "ΔECE first" if sweep.base_note else "ΔECE base"


def _describe_base(sweep: Sweep) -> str:
    bases = dict.fromkeys(base.label for base in sweep.bases.values())
    if len(bases) > 1:
        return "the last base above it, in points"
    return f"{sweep.base_note or next(iter(bases))}, in points"


def _records(sweep: Sweep, papers: Mapping[str, Any]) -> list[Record]:
    """Return a row per rung; a rung with a trial at chance is never best or second."""
    metrics = sweep.shown or means.usual_metrics(sweep.trials)
    table, printed = means.ladder_table(sweep, (*metrics, "ece")), means.published_columns(sweep)
    of_metric = {name: rows.drop_duplicates("rung") for name, rows in table.groupby("metric")}
    may_win = [not is_chance(sweep.flags(rung.index)) for rung in sweep.rungs]
    columns = {sweep.row_name: [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    for metric in metrics:
        rows: Any = of_metric[metric].itertuples()
        cells = [
            Cell(sweep.failures(row.rung) or NOTHING.text)
            if not row.n
            else means.interval_cell(sweep, row.rung, metric, row.mean)
            if sweep.shows_intervals
            else Cell.number(metric, row.mean, row.sd)
            for row in rows
        ]
        columns[METRICS[metric].head] = ranked(cells, METRICS[metric].direction, may_win)
    if sweep.shows_regime:
        regime = [_regime_cells(sweep, rung.index) for rung in sweep.rungs]
        columns |= {head: [cells[head] for cells in regime] for head in regime[0]}
    # A method of a comparison builds on no other.
    changes = {_STEP: "change_before"} if sweep.row_name == "rung" else {}
    for head, name in {**changes, base_head(sweep): "change_base"}.items():
        columns[head] = [Cell.number("ece", v, signed=True) for v in of_metric["ece"][name]]
    columns["trials"] = [Cell.ended(sweep.counts(rung.index)) for rung in sweep.rungs]
    for head, key in papers.items():
        values = (printed[key].get(rung.label, math.nan) for rung in sweep.rungs)
        columns[head] = [Cell.number("ece", value) for value in values]
    return records_of(columns)


def _best_first(sweep: Sweep, records: Sequence[Record]) -> list[Record]:
    """Sort methods by the primary metric; those at chance or without a number are last."""
    metric = METRICS[sweep.shown[0] if sweep.shown else "ece"]

    def sort_key(pair: tuple[RungRecord, Record]) -> tuple[bool, bool, float]:
        rung, value = pair[0], pair[1][metric.head].value
        sign = {"min": 1, "max": -1, None: 0}[metric.direction]
        return value is None, is_chance(sweep.flags(rung.index)), sign * (value or 0.0)

    return [record for _, record in sorted(zip(sweep.rungs, records, strict=True), key=sort_key)]


def _regime_cells(sweep: Sweep, rung: int) -> dict[str, Cell]:
    """Return the train accuracy of the networks of a rung, and the confidence gap of the rung."""
    trials = sweep.of_rung(rung)
    train = known_networks(trials)["train"].mean()
    gaps = trials.reindex(columns=["test/confidence_gap"])["test/confidence_gap"].astype(float)
    gap = Cell.number("confidence_gap", gaps.mean(), gaps.std(ddof=1), signed=True)
    head = METRICS["confidence_gap"].head
    return {"Network on train (%)": Cell.number("accuracy", train), head: gap}


def plan(sweep: Sweep) -> Table:
    """Build a table of the planned trials of each rung by status."""
    records = []
    for rung in sweep.rungs:
        counts = sweep.counts(rung.index)
        ended = {name: Cell.of(counts.get(name, 0)) for name in (*STATUSES, "missing")}
        cells = {"kind": Cell.of(rung.kind), "description": Cell.of(rung.ingredient)}
        planned = {"planned": Cell.of(sum(counts.values()))}
        records.append({sweep.row_name: Cell(sweep.label(rung)), **cells, **planned, **ended})
    return Table("planned", f"Planned trials of each {sweep.row_name} by status.", records)


def _seeds(sweep: Sweep, row: "pd.Series[Any]", label: str = "method") -> Record:
    cells = {"network seed": Cell.of(row["network_seed"]), "head seed": Cell.of(row["head_seed"])}
    return {sweep.row_name: Cell(row[label]), **cells}


def unfinished(sweep: Sweep) -> Table:
    """Build a table of the planned trials without results, with the reason."""
    rows = planned_trials(sweep)
    bad = rows[rows["status"] != "done"]
    records = [
        {
            **_seeds(sweep, row),
            "status": Cell(row["status"]),
            "reason": Cell(row["note"] or "no result on disk"),
            "spec": Cell(row["spec_hash"]),
        }
        for _, row in bad.head(MAX_ROWS).iterrows()
    ]
    note = "Planned trials without results; means do not include them."
    return Table("unfinished", note, records, chosen_by=(sweep.row_name, "status"), total=len(bad))


def trials(sweep: Sweep) -> Table:
    """Build a table of every planned trial with its results."""
    rows = planned_trials(sweep)
    order = (*means.usual_metrics(rows), *OOD_SHOWN)
    parts = [name.rpartition("/")[::2] for name in map(str, rows) if is_metric_column(name)]
    names = [
        (split, metric)
        for split, metric in parts
        # There are dozens of single corruptions; the shift tables show their means.
        if metric in order
        and not split.startswith(_HIDDEN_SPLITS)
        and split.split("/")[0] not in FAMILIES
    ]
    names.sort(key=lambda part: (part[0] != "test", part[0], order.index(part[1])))
    records = []
    for _, row in rows.head(MAX_ROWS).iterrows():
        cells = {**_seeds(sweep, row), "status": Cell(row["status"]), "flags": Cell(row["flags"])}
        for split, metric in names:
            head = METRICS[metric].head if split == "test" else f"{split}: {METRICS[metric].head}"
            cells[head] = Cell.number(metric, row[column(split, metric)])
        seconds = Cell.measured(float(row.get("wall_s", math.nan)))
        records.append({**cells, "time (s)": seconds, "spec": Cell(row["spec_hash"])})
    if all(record["flags"].is_blank for record in records):
        records = [{k: v for k, v in record.items() if k != "flags"} for record in records]
    note = "One row per planned trial; the time includes all trials that ran together with it."
    note += "".join(f" {line}." for line in legend(rows["flags"]))
    return Table("trial-rows", note, records, chosen_by=(sweep.row_name, "status"), total=len(rows))


def drawn_intervals(sweep: Sweep) -> Table:
    """Build a table of the rungs that have bootstrap intervals."""
    if sweep.intervals.empty:  # a look-up takes a millisecond per cell
        return Table("drawn-intervals", "", [])
    columns = {sweep.row_name: [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    for metric, rows in means.ladder_table(sweep).groupby("metric", sort=False):
        own: Any = rows.itertuples()
        cells = [means.interval_cell(sweep, row.rung, row.metric, row.mean) for row in own]
        columns[METRICS[str(metric)].head] = cells
    records = [r for r in records_of(columns) if any("[" in c.text for c in list(r.values())[1:])]
    return Table("drawn-intervals", f"{means.interval_note(sweep)}.", records)


def intervals(sweep: Sweep, rows: pd.DataFrame) -> Table:
    """Build the table of ``over_samples``."""
    records = []
    for _, row in rows.head(MAX_ROWS).iterrows():
        cells = _seeds(sweep, row, "rung")
        for metric in ("accuracy", "ece"):
            head = METRICS[metric].head
            cells[head] = Cell.number(metric, row[metric])
            cells[f"{head}, 95 %"] = Cell.span(metric, row[f"{metric}_low"], row[f"{metric}_high"])
        records.append(cells)
    note = (
        "95 % intervals over the test samples, for a fixed trained network. They come from the "
        "bootstrap if a trial has it, else from its bins: Wilson's interval for accuracy, and for "
        "ECE the inversion of a test that subtracts the bias due to chance (a calibrated network "
        f"has an ECE above 0), widened to include the ECE shown. {AT_VALUE}."
    )
    return Table("interval-rows", note, records, chosen_by=(sweep.row_name,), total=len(rows))


@cached_per_sweep
def rung_settings(sweep: Sweep) -> Table:
    """Build a table of every setting of the rungs."""
    rows: list[Any] = by_rung(sweep.trials, sweep.labels).to_dict("records")
    note = "Every setting but the seeds, in the form that --set accepts (slot.key=value)."
    records = [{head: Cell.of(value) for head, value in row.items()} for row in rows]
    return Table("values", note, records)
