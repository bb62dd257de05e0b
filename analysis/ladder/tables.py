"""The tables of a ladder or comparison."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.compare.regime import known_networks, regime_of
from analysis.ladder import intervals as intervals_of
from analysis.ladder.means import (
    ladder_table,
    mean_over,
    published_columns,
    table_metrics,
    usual_metrics,
)
from analysis.ladder.shift_tables import OOD_SHOWN
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.settings import by_rung
from analysis.shifts import FAMILIES
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, MAX_ROWS, Table
from analysis.text import (
    NOTHING,
    Cell,
    Record,
    cell,
    measured_cell,
    number_cell,
    ranked,
    records_of,
    span_cell,
)
from analysis.tidy import planned_trials
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import AT_VALUE, BASE, METRICS, column
from tune_calib.spec.names import STATUSES, is_chance, legend

_PAPER = "paper: "  # before the head of a column of printed numbers
_FIRST = ("ece", "accuracy", "nll")  # metrics that matter most, where the screen is narrow
# Splits of the regime, which has columns of its own, and what settings were chosen by.
_NOT_SHOWN = ("select", "train", BASE)


def ladder(sweep: Sweep) -> Table:
    """Mean and spread of every rung, the paper's numbers beside them."""
    manifest, titles = sweep.manifest, published_titles()
    # Heads of the columns of printed numbers, and which of ``published_columns`` each shows.
    keys: list[Any] = published_columns(sweep).columns.to_list()
    papers = {_PAPER + " ".join(titles.get(name, name) for name in key): key for key in keys}
    records = _records(sweep, papers)
    note = f" Columns 'paper' are the ECE (%) printed in {manifest.published}."
    groups = {head: ("published ECE (%)" if head in papers else "this run",
                     head.removeprefix(_PAPER)) for head in list(records[0])[1:]}  # fmt: skip
    return Table(
        "ladder",
        f"{_caption(sweep)} {BEST}{note if manifest.published else ''}",
        records,
        rules=_blocks(sweep),
        first=[*(METRICS[name].head for name in sweep.shown or _FIRST), "ΔECE base", "trials"],
        groups=groups if papers else {},
        label=label_of(manifest.ladder.split()[0], manifest.dataset),
        is_main=True,
    )


def _caption(sweep: Sweep) -> str:
    """What the numbers are of, over what they vary, and what is missing."""
    manifest = sweep.manifest
    parts = [manifest.title, manifest.setting, f"test split, {mean_over(sweep)}"]
    ended = [f"{n} {status}" for status, n in sweep.counts().items() if status != "missing"]
    parts.append(f"Trials of all rungs: {', '.join(ended)}; only done ones enter")
    parts.append("Δ: difference of means, to the rung before and to the base")
    if sweep.shows_intervals:
        parts.append(intervals_of.note(sweep))
    parts.append(regime_of(sweep).sentence)
    if sweep.vanished:
        parts.append(sweep.vanished)
    if sweep.missing:
        parts.append(f"INCOMPLETE: {sweep.missing} of {len(manifest.planned)} trials missing")
    return ". ".join([*parts, *legend(sweep.flags())]) + "."


def _records(sweep: Sweep, papers: dict[str, Any]) -> list[Record]:
    """One row a rung; one with a trial at chance is never best or second."""
    table: Any = ladder_table(sweep, (*table_metrics(sweep), "ece"))
    printed = published_columns(sweep)
    may_win = [not is_chance(sweep.flags(rung.index)) for rung in sweep.rungs]
    absent = [Cell(sweep.failures(rung.index) or NOTHING.text) for rung in sweep.rungs]
    columns = {"rung": [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    for metric in table_metrics(sweep):
        rows = table[table["metric"] == metric].drop_duplicates("rung").itertuples()
        cells = [
            _mean(sweep, metric, row) if row.n else other
            for row, other in zip(rows, absent, strict=True)
        ]
        columns[METRICS[metric].head] = ranked(cells, METRICS[metric].direction, may_win)
    if sweep.shows_regime:
        regime = [_regime_cells(sweep, rung.index) for rung in sweep.rungs]
        columns |= {head: [cells[head] for cells in regime] for head in regime[0]}
    ece = table[table["metric"] == "ece"].drop_duplicates("rung")
    for head, name in (("ΔECE before", "change_before"), ("ΔECE base", "change_base")):
        columns[head] = [number_cell("ece", value, signed=True) for value in ece[name]]
    columns["trials"] = [Cell(text) for text in ece["statuses"]]
    for head, key in papers.items():
        values = (printed[key].get(rung.label, math.nan) for rung in sweep.rungs)
        columns[head] = [number_cell("ece", value) for value in values]
    return records_of(columns)


def _mean(sweep: Sweep, metric: str, row: Any) -> Cell:
    if sweep.shows_intervals:
        return intervals_of.cell(sweep, row.rung, metric, row.mean)
    return number_cell(metric, row.mean, row.sd)


def _regime_cells(sweep: Sweep, rung: int) -> dict[str, Cell]:
    """How the networks beneath a rung fit, and how confident the rung itself is."""
    trials = sweep.of_rung(rung)
    train = known_networks(trials)["train"].mean()
    gaps = trials.reindex(columns=["test/confidence_gap"])["test/confidence_gap"].astype(float)
    return {
        "Network on train (%)": number_cell("accuracy", train),
        METRICS["confidence_gap"].head: number_cell(
            "confidence_gap", gaps.mean(), gaps.std(ddof=1), signed=True
        ),
    }


def _blocks(sweep: Sweep) -> dict[int, str]:
    """Rungs with a rule before them: the first control, and the first variant of a step."""
    kinds = [rung.kind for rung in sweep.rungs]
    return {
        index: f"{kind}s"
        for index, (before, kind) in enumerate(pairwise(kinds), start=1)
        if (kind == "control" and before != "control") or (kind == "variant" and before == "step")
    }


def plan(sweep: Sweep) -> Table:
    """What each rung is, and how many of its planned trials ended how."""
    records = []
    for rung in sweep.rungs:
        counts = sweep.counts(rung.index)
        ended = {status: cell(counts.get(status, 0)) for status in (*STATUSES, "missing")}
        told = {
            "rung": Cell(sweep.label(rung)),
            "kind": Cell(rung.kind),
            "what": Cell(rung.ingredient),
        }
        records.append({**told, "planned": cell(sum(counts.values())), **ended})
    return Table("planned", "Planned trials of each rung by how they ended.", records)


def unfinished(sweep: Sweep) -> list[Table]:
    """Every planned trial without numbers and why; none if all are done."""
    rows = planned_trials(sweep)
    bad = rows[rows["status"] != "done"]
    records = [
        {
            "rung": Cell(row["method"]),
            "status": Cell(row["status"]),
            "network seed": cell(row["network_seed"]),
            "head seed": cell(row["head_seed"]),
            "why": Cell(row["note"] or "no result on disk"),
            "spec": Cell(row["spec_hash"]),
        }
        for _, row in bad.head(MAX_ROWS).iterrows()
    ]
    note = "Planned trials without numbers; they enter no mean."
    if not records:
        return []
    return [Table("unfinished", note, records, chosen_by=("rung", "status"), total=len(bad))]


def trials(sweep: Sweep) -> Table:
    """Every planned trial with its numbers."""
    rows = planned_trials(sweep)
    names = _shown(rows)
    records = [_trial(row, names) for _, row in rows.head(MAX_ROWS).iterrows()]
    if all(record["flags"].is_blank for record in records):
        records = [{k: v for k, v in record.items() if k != "flags"} for record in records]
    note = "One row a planned trial; time is of the Ray trial that ran it, alone or with others."
    note += "".join(f" {line}." for line in legend(rows["flags"]))
    return Table("trial-rows", note, records, chosen_by=("rung", "status"), total=len(rows))


def drawn_intervals(sweep: Sweep) -> list[Table]:
    """A row a rung that has bootstrap intervals: its means with them; none if no rung has."""
    if sweep.intervals.empty:
        return []
    shown = table_metrics(sweep)
    means = ladder_table(sweep, shown).set_index(["rung", "metric"])["mean"]
    records = []
    for rung in sweep.rungs:
        cells = {
            METRICS[metric].head: intervals_of.cell(
                sweep, rung.index, metric, means[rung.index, metric]
            )
            for metric in shown
        }
        if any("[" in own.text for own in cells.values()):
            records.append({"rung": Cell(sweep.label(rung)), **cells})
    return [Table("drawn-intervals", f"{intervals_of.note(sweep)}.", records)] if records else []


def intervals(rows: pd.DataFrame) -> list[Table]:
    """Intervals over the test samples (``resampling.over_samples``); none without bins."""
    if rows.empty:
        return []
    records = []
    for row in rows.head(MAX_ROWS).to_dict("records"):
        cells = {
            "rung": Cell(row["rung"]),
            "network seed": cell(row["network_seed"]),
            "head seed": cell(row["head_seed"]),
        }
        for metric in ("accuracy", "ece"):
            ends = (row[f"{metric}_{end}"] for end in ("low", "high"))
            cells[METRICS[metric].head] = number_cell(metric, row[metric])
            cells[f"{METRICS[metric].head}, 95 %"] = span_cell(metric, *ends)
        records.append(cells)
    note = (
        "95 % intervals over the test samples: how far the numbers would move with other test "
        "samples, with the trained network as it is. Those of the bootstrap where a trial has "
        "them, else from its bins; then of accuracy Wilson's, of ECE by inversion of a test, "
        "which takes off what chance adds to it (a calibrated network shows one above 0), widened "
        f"to hold the ECE shown. {AT_VALUE}."
    )
    return [Table("interval-rows", note, records, chosen_by=("rung",), total=len(rows))]


def _shown(rows: pd.DataFrame) -> list[str]:
    """Metric columns of the trials' table: those of the ladder on test, and of shifted sets."""
    order = (*usual_metrics(rows), *OOD_SHOWN)
    parts = [name.rpartition("/")[::2] for name in map(str, rows) if is_metric_column(name)]
    own = [(split, metric) for split, metric in parts if not split.startswith(_NOT_SHOWN)]
    # Single corruptions are dozens; their means stand in tables of their own.
    own = [(split, metric) for split, metric in own if split.split("/")[0] not in FAMILIES]
    shown = [(split, metric) for split, metric in own if metric in order]
    shown.sort(key=lambda part: (part[0] != "test", part[0], order.index(part[1])))
    return [column(*part) for part in shown]


def _trial(row: "pd.Series[Any]", names: Sequence[str]) -> dict[str, Cell]:
    cells = {
        "rung": Cell(row["method"]),
        "network seed": cell(row["network_seed"]),
        "head seed": cell(row["head_seed"]),
        "status": Cell(row["status"]),
        "flags": Cell(row["flags"]),
    }
    for name in names:
        split, _, metric = name.rpartition("/")
        head = METRICS[metric].head
        cells[head if split == "test" else f"{split}: {head}"] = number_cell(metric, row[name])
    wall = row.get("wall_s")
    seconds = NOTHING if wall is None or pd.isna(wall) else measured_cell(wall)
    return {**cells, "time (s)": seconds, "spec": Cell(row["spec_hash"])}


def rung_settings(sweep: Sweep) -> list[Table]:
    """Every setting of the rungs; none if no trial says how it was set."""
    rows: list[Any] = by_rung(sweep.trials, sweep.labels).to_dict("records")
    note = "Every setting but the seeds, written as the option --set takes it (slot.key=value)."
    records = [{head: cell(value) for head, value in row.items()} for row in rows]
    return [Table("values", note, records)] if records else []
