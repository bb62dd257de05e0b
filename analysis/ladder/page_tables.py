"""The tables of the report page: what stands in them, as text that can be sorted."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from analysis.compare import significance_tables
from analysis.compare.significance import Verdict
from analysis.ladder import tables
from analysis.ladder.figures import samples
from analysis.ladder.ladder import TABLE_METRICS
from analysis.ladder.recipes import NOTE, differing
from analysis.load import Sweep
from analysis.settings import by_rung
from analysis.tidy import planned_trials
from tune_calib.names import OOD_METRICS, STATUSES, legend
from tune_calib.results import is_metric_column

MAX_ROWS = 2000  # more would make a page that no browser sorts at once
NO_VALUE = ("", "-")

# What a cell that starts with a number is sorted by: "7.84 ± 1.56", "< 0.0001", "1.0 to 2.0".
_NUMBER = re.compile(r"(?:< )?([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?: (?:±|to) .*)?$")


class Cell(NamedTuple):
    """Text of a cell, and the number that it is sorted by (None: by its text)."""

    text: str
    sort: float | None


@dataclass(frozen=True)
class Table:
    """One table of the page.

    Attributes:
        key: its id in the page.
        caption: what stands in it.
        records: a row each, cells as text by head; the first column names the row. All rows have
            the same heads; ``Markup`` is not escaped.
        chosen_by: heads of the columns that have a list to choose a value from.
        rules: places of rows that begin a block.
    """

    key: str
    caption: str
    records: Sequence[dict[str, str]]
    chosen_by: tuple[str, ...] = ()
    rules: frozenset[int] = field(default_factory=frozenset)

    @property
    def heads(self) -> list[str]:
        """Heads of the columns."""
        return list(self.records[0])

    @cached_property
    def rows(self) -> list[list[Cell]]:
        """Cells of the rows that the page shows."""
        return [[_cell(text) for text in record.values()] for record in self.records[:MAX_ROWS]]

    @property
    def choices(self) -> list[int]:
        """Places of the columns that have a list to choose from."""
        return [self.heads.index(head) for head in self.chosen_by]

    def options(self, place: int) -> list[str]:
        """Values of a column in the order in which they appear."""
        return list(dict.fromkeys(row[place].text for row in self.rows))

    def is_number(self, place: int) -> bool:
        """Whether most cells of a column that have a value are numbers; a few say why not."""
        column = [row[place] for row in self.rows if row[place].text not in NO_VALUE]
        return place > 0 and 2 * sum(cell.sort is not None for cell in column) > len(column)


def _cell(text: str) -> Cell:
    plain = str(text.striptags()) if isinstance(text, Markup) else text
    found = _NUMBER.match(plain)
    return Cell(text, float(found[1]) if found else None)


def ladder(sweep: Sweep) -> Table:
    """Mean and spread of every rung, the paper's numbers beside them."""
    marks = {place: Markup(mark) for place, mark in tables.MARKS["html"].items()}
    rows = tables.wide_rows(sweep, lambda text, place: marks[place].format(text))
    used = [head for head in rows[0] if any(row[head] not in NO_VALUE for row in rows)]
    rows = [{head: row[head] for head in used} for row in rows]
    note = f"{tables.caption(sweep)} Best bold, second underlined.{tables.paper_note(sweep)}"
    starts = (place for place in range(len(rows)) if tables.starts_block(sweep, place))
    return Table("ladder", note, rows, rules=frozenset(starts))


def significance(verdicts: Sequence[Verdict]) -> list[Table]:
    """Spread of each method, the declared comparisons, and the mean ranks of Friedman's test."""
    found = []
    for verdict in verdicts:
        lines = significance_tables.sentences(verdict)
        note = " ".join(significance_tables.full_stops(lines))
        if verdict.friedman is not None:
            rows = significance_tables.ranked_rows(verdict.friedman)
            found.append(Table("friedman", f"Mean ranks. {note}", rows))
        else:
            spread = significance_tables.described_rows(verdict)
            compared = significance_tables.compared_rows(verdict)
            found.append(Table("spread", "Mean and spread of each method over the blocks.", spread))
            found.append(Table("comparisons", note, compared))
    return found


def single_samples(sweep: Sweep, statistics: pd.DataFrame) -> list[Table]:
    """What methods make of single samples at the last epoch; none if no method judges them."""
    if statistics.empty:
        return []
    last = samples.last_epochs(sweep, statistics)
    records = samples.records(last)
    return [Table("samples", samples.caption(sweep, last), records, chosen_by=("split",))]


def plan(sweep: Sweep) -> Table:
    """What each rung is, and how many of its planned trials ended how."""
    records = []
    for rung in sweep.rungs:
        counts = sweep.counts(rung.index)
        ended = {status: str(counts.get(status, 0)) for status in (*STATUSES, "missing")}
        told = {
            "rung": sweep.label(rung),
            "kind": rung.kind,
            "what": rung.ingredient,
        }
        records.append({**told, "planned": str(sum(counts.values())), **ended})
    return Table("planned", "Planned trials of each rung by how they ended.", records)


def unfinished(sweep: Sweep) -> list[Table]:
    """Every planned trial without numbers and why; none if all are done."""
    rows = planned_trials(sweep)
    records = [
        {
            "rung": str(row["method"]),
            "status": str(row["status"]),
            "network seed": _seed(row["network_seed"]),
            "head seed": _seed(row["head_seed"]),
            "why": str(row["note"]) or "no result on disk",
            "spec": str(row["spec_hash"]),
        }
        for _, row in rows[rows["status"] != "done"].iterrows()
    ]
    note = "Planned trials without numbers; they enter no mean."
    return [Table("unfinished", note, records, chosen_by=("rung", "status"))] if records else []


def trials(sweep: Sweep) -> Table:
    """Every planned trial with its numbers."""
    rows = planned_trials(sweep)
    names = _shown(rows)
    records = [_trial(row, names) for _, row in rows.head(MAX_ROWS).iterrows()]
    if not any(record["flags"] for record in records):
        records = [{k: v for k, v in record.items() if k != "flags"} for record in records]
    note = "One row a planned trial; time is of the Ray trial that ran it, alone or with others."
    note += "".join(f" {line}." for line in legend(rows["flags"]))
    if len(rows) > MAX_ROWS:
        note += f" The first {MAX_ROWS} of {len(rows)}; the Parquet files hold all."
    return Table("trial-rows", note, records, chosen_by=("rung", "status"))


def intervals(rows: pd.DataFrame) -> list[Table]:
    """Intervals over the test samples (``resampling.over_samples``); none without bins."""
    if rows.empty:
        return []
    records = []
    for row in rows.head(MAX_ROWS).to_dict("records"):
        cells = {
            "rung": str(row["rung"]),
            "network seed": _seed(row["network_seed"]),
            "head seed": _seed(row["head_seed"]),
        }
        for metric in ("accuracy", "ece"):
            ends = (tables.number(metric, row[f"{metric}_{end}"]) for end in ("low", "high"))
            cells[tables.title(metric)] = tables.number(metric, row[metric])
            cells[f"{tables.title(metric)}, 95 %"] = " to ".join(ends)
        records.append(cells)
    note = (
        "95 % intervals over the test samples, from each trial's bins: how far the numbers would "
        "move with other test samples, with the trained network as it is. Accuracy: Wilson's. ECE: "
        "inversion of a test, which takes off what chance adds to it (a calibrated network shows "
        "one above 0), widened to hold the ECE shown."
    )
    return [Table("interval-rows", note, records, chosen_by=("rung",))]


def _shown(rows: pd.DataFrame) -> list[str]:
    """Metric columns of the trials' table: those of the ladder on test, and of shifted sets."""
    places = [(name, *name.rpartition("/")[::2]) for name in map(str, rows)]
    found = [place for place in places if is_metric_column(place[0]) and place[1] != "select"]
    order = {metric: place for place, metric in enumerate((*TABLE_METRICS, *OOD_METRICS))}
    shown = [place for place in found if place[2] in order]
    shown.sort(key=lambda place: (place[1] != "test", place[1], order[place[2]]))
    return [name for name, _, _ in shown]


def _trial(row: "pd.Series[Any]", names: Sequence[str]) -> dict[str, str]:
    cells = {
        "rung": str(row["method"]),
        "network seed": _seed(row["network_seed"]),
        "head seed": _seed(row["head_seed"]),
        "status": str(row["status"]),
        "flags": str(row["flags"]),
    }
    for name in names:
        split, _, metric = name.rpartition("/")
        head = tables.title(metric)
        cells[head if split == "test" else f"{split}: {head}"] = tables.number(metric, row[name])
    wall = row.get("wall_s")
    return {**cells, "time (s)": "-" if pd.isna(wall) else f"{wall:.1f}", "spec": row["spec_hash"]}


def _seed(value: Any) -> str:
    return "-" if pd.isna(value) else str(value)


def recipes(sweep: Sweep) -> list[Table]:
    """How rungs were trained, where that differs; none if all were trained alike."""
    records: list[Any] = differing(sweep).to_dict("records")
    return [Table("recipes", NOTE, records)] if records else []


def rung_settings(sweep: Sweep) -> list[Table]:
    """Every setting of the rungs; none if no trial says how it was set."""
    frame = by_rung(sweep.trials, sweep.labels)
    records: list[Any] = frame.to_dict("records")
    note = "Every setting but the seeds, written as the option --set takes it (slot.key=value)."
    return [Table("values", note, records)] if records else []


def environment(trials: pd.DataFrame) -> list[Table]:
    """Versions, devices and revisions as the trials recorded them; none if none did."""
    found: Counter[tuple[str, str]] = Counter()
    for row in trials.to_dict("records"):
        told = {"device": row.get("device"), "threads a trial": row.get("threads")}
        told |= {"processor": row.get("processor"), "gpu": row.get("gpu")}
        told |= {"instruction set": row.get("instruction_set")}
        told |= {"git revision": row.get("git_revision")}
        versions = row.get("versions")
        told |= json.loads(versions) if isinstance(versions, str) else {}
        found.update((name, str(value)) for name, value in told.items() if not pd.isna(value))
    names = list(dict.fromkeys(name for name, _ in found))
    records = [
        {"what": name, "value": value, "trials": str(count)}
        for (name, value), count in sorted(found.items(), key=lambda item: names.index(item[0][0]))
    ]
    note = "As each trial recorded it; + behind a revision: with changes that are not committed."
    return [Table("versions", note, records)] if records else []
