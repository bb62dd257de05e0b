"""The tables of a ladder's report page: what stands in them, as cells that can be sorted."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.compare import significance_tables
from analysis.compare.significance import Verdict
from analysis.ladder import intervals as intervals_of
from analysis.ladder import recipes as recipes_of
from analysis.ladder import samples, shift_tables, tables
from analysis.ladder.means import usual_metrics
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.page.table import Table
from analysis.settings import by_rung
from analysis.shifts import FAMILIES
from analysis.text import (
    NOTHING,
    Cell,
    cell,
    full_stops,
    measured_cell,
    number_cell,
    span_cell,
    title,
)
from analysis.tidy import planned_trials
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import AT_VALUE, BASE, column
from tune_calib.spec.names import STATUSES, legend

# Splits of the regime, which has columns of its own, and what settings were chosen by.
_NOT_SHOWN = ("select", "train", BASE)


def ladder(sweep: Sweep) -> Table:
    """Mean and spread of every rung, the paper's numbers beside them."""
    rows = tables.records(sweep)
    used = [head for head in rows[0] if not all(row[head].is_blank for row in rows)]
    rows = [{head: row[head] for head in used} for row in rows]
    note = f"{tables.caption(sweep)} Best bold, second underlined.{tables.paper_note(sweep)}"
    starts = (index for index in range(len(rows)) if tables.starts_block(sweep, index))
    return Table("ladder", note, rows, rules=frozenset(starts))


def shifts(sweep: Sweep) -> list[Table]:
    """Foreign images and corruptions; none where nothing was looked at."""
    return [
        Table(table.key, shift_tables.caption(sweep, table), shift_tables.records(sweep, table))
        for table in shift_tables.shift_tables(sweep)
    ]


def significance(verdicts: Sequence[Verdict]) -> list[Table]:
    """Spread of each method, the declared comparisons, and the mean ranks of Friedman's test."""
    found = []
    for verdict in verdicts:
        lines = significance_tables.sentences(verdict)
        note = " ".join(full_stops(lines))
        if verdict.friedman is not None:
            if rows := significance_tables.ranked_rows(verdict.friedman):
                found.append(Table("friedman", f"Mean ranks. {note}", rows))
        else:
            spread = significance_tables.spread_rows(verdict)
            compared = significance_tables.compared_rows(verdict)
            found.append(Table("spread", "Mean and spread of each method over the blocks.", spread))
            found.append(Table("comparisons", note, compared))
    return found


def single_samples(results: LadderResults) -> list[Table]:
    """What methods make of single samples at the last epoch; none if no method judges them."""
    sweep = results.sweep
    if results.statistics.empty:
        return []
    last = samples.last_epochs(sweep, results.statistics)
    if last.empty:
        return []
    records = samples.records(last)
    return [Table("samples", samples.caption(sweep, last), records, chosen_by=("split",))]


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
    records = [
        {
            "rung": Cell(row["method"]),
            "status": Cell(row["status"]),
            "network seed": cell(row["network_seed"]),
            "head seed": cell(row["head_seed"]),
            "why": Cell(row["note"] or "no result on disk"),
            "spec": Cell(row["spec_hash"]),
        }
        for _, row in rows[rows["status"] != "done"].iterrows()
    ]
    note = "Planned trials without numbers; they enter no mean."
    return [Table("unfinished", note, records, chosen_by=("rung", "status"))] if records else []


def trials(sweep: Sweep) -> Table:
    """Every planned trial with its numbers."""
    rows = planned_trials(sweep)
    names = _shown(rows)
    records = [_trial(row, names) for _, row in rows.iterrows()]
    if all(record["flags"].is_blank for record in records):
        records = [{k: v for k, v in record.items() if k != "flags"} for record in records]
    note = "One row a planned trial; time is of the Ray trial that ran it, alone or with others."
    note += "".join(f" {line}." for line in legend(rows["flags"]))
    return Table("trial-rows", note, records, chosen_by=("rung", "status"))


def drawn_intervals(sweep: Sweep) -> list[Table]:
    """Means of each rung with their bootstrap intervals; none if no trial has them."""
    if sweep.intervals.empty or not (records := intervals_of.records(sweep)):
        return []
    return [Table("drawn-intervals", f"{intervals_of.note(sweep)}.", records)]


def intervals(rows: pd.DataFrame) -> list[Table]:
    """Intervals over the test samples (``resampling.over_samples``); none without bins."""
    if rows.empty:
        return []
    records = []
    for row in rows.to_dict("records"):
        cells = {
            "rung": Cell(row["rung"]),
            "network seed": cell(row["network_seed"]),
            "head seed": cell(row["head_seed"]),
        }
        for metric in ("accuracy", "ece"):
            ends = (row[f"{metric}_{end}"] for end in ("low", "high"))
            cells[title(metric)] = number_cell(metric, row[metric])
            cells[f"{title(metric)}, 95 %"] = span_cell(metric, *ends)
        records.append(cells)
    note = (
        "95 % intervals over the test samples: how far the numbers would move with other test "
        "samples, with the trained network as it is. Those of the bootstrap where a trial has "
        "them, else from its bins; then of accuracy Wilson's, of ECE by inversion of a test, "
        "which takes off what chance adds to it (a calibrated network shows one above 0), widened "
        f"to hold the ECE shown. {AT_VALUE}."
    )
    return [Table("interval-rows", note, records, chosen_by=("rung",))]


def _shown(rows: pd.DataFrame) -> list[str]:
    """Metric columns of the trials' table: those of the ladder on test, and of shifted sets."""
    order = (*usual_metrics(rows), *shift_tables.OOD_SHOWN)
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
        head = title(metric)
        cells[head if split == "test" else f"{split}: {head}"] = number_cell(metric, row[name])
    wall = row.get("wall_s")
    seconds = NOTHING if wall is None or pd.isna(wall) else measured_cell(wall)
    return {**cells, "time (s)": seconds, "spec": Cell(row["spec_hash"])}


def recipes(sweep: Sweep) -> list[Table]:
    """How rungs were trained, where that differs; none if all were trained alike."""
    records = recipes_of.records(sweep)
    return [Table("recipes", recipes_of.NOTE, records)] if records else []


def rung_settings(sweep: Sweep) -> list[Table]:
    """Every setting of the rungs; none if no trial says how it was set."""
    rows: list[Any] = by_rung(sweep.trials, sweep.labels).to_dict("records")
    note = "Every setting but the seeds, written as the option --set takes it (slot.key=value)."
    records = [{head: cell(value) for head, value in row.items()} for row in rows]
    return [Table("values", note, records)] if records else []
