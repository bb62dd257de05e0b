"""Compute the tables of README and pages from the results in the repository.

A table stands between a description of it in YAML, or the name of a file with one beside this
program (``<!-- results NAME.yaml -->``), and an end mark; ``python -m docs.results`` writes it, and
a test compares it::

    <!-- results
    head: Method
    rows: {cross entropy: ce, + MaC-Cal: mac_cal}
    columns:
      - {title: CIFAR-100, runs: [day/maccal-table1/methods-cifar100], metrics: [accuracy, ece]}
    -->
    <!-- end -->

``rows`` names the rung of each row. ``runs`` are folders of ``docs/claims``; a cell is the mean
over all distinct trials of the rung in them, with its standard deviation, or the ends of its
interval (``cells: interval``), or alone (``cells: mean``). ``rung`` changes the rungs of a column
(``"{}, scaled"``), ``rungs`` names those of some rows, without the others; ``split`` is where it is
measured (``select``, ``ood/cifar10``). ``origin`` adds the run of each row where they differ, and
the settings in which its head differs from those of other rows. A folder as ``ladder`` gives the
table of its report, with ``metrics``. ``effects`` names the column of each run
with a design, whose Shapley values of ``metrics`` it shows by step, as decided, also ``behind`` its
post-hoc method. ``against`` names a rung of all ``decisions``, runs by column: a row per rung, with
its mean rank by one of ``metrics`` over the runs, and its difference in each, as decided.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from analysis.compare.decision import decide_sums
from analysis.compare.effects import compute_effects
from analysis.compare.gather import collect
from analysis.compare.hypotheses import format_change
from analysis.compare.ranks import rank
from analysis.ladder.means import may_win
from analysis.ladder.tables import ladder
from analysis.load import Run, load
from analysis.tables.render import body
from analysis.tables.table import Table
from analysis.text import Cell, Record, ranked, records_of
from tune_calib.errors import UserError
from tune_calib.files.paths import parse_path
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Comparison

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "docs/claims"
PAGES = ROOT / "docs/pages"
WRITTEN = (ROOT / "README.md", PAGES / "results.md", PAGES / "which-method.md")

_BLOCK = re.compile(r"^(<!-- results(?: (\S+\.yaml) |\n(.*?)^)-->\n).*?^<!-- end -->$", re.M | re.S)
Rows = Sequence[tuple[str, pd.DataFrame]]
"""The rungs of a column with their trials."""

_HEAD_SETTINGS = {
    "lr": "rate {:.2g}",
    "loss_reduction": "{} loss",
    "batch_size": "batch {}",
    "weight_decay": "decay {:.2g}",
    "epochs": "{} epochs",
    "augment": "augmentation {}",
}
_GAIN = "nll_gain"  # the share of ``analysis.ladder.means.nll_gains``, with the first row as base


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Columns:
    """Columns on the same runs."""

    runs: list[str]
    metrics: list[str]
    title: str = ""
    rung: str = "{}"
    rungs: dict[str, str] = field(default_factory=dict)
    origin: bool = False
    split: str = "test"
    cells: Literal["spread", "interval", "mean"] = "spread"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ResultTable:
    """A table of results: rungs as rows, the table of one report, effects, or decisions."""

    head: str = ""
    rows: dict[str, str] = field(default_factory=dict)
    columns: list[Columns] = field(default_factory=list)
    ladder: str = ""
    metrics: tuple[str, ...] = ()
    effects: dict[str, str] = field(default_factory=dict)
    behind: bool = False
    decisions: dict[str, str] = field(default_factory=dict)
    against: str = ""


def generate() -> Iterator[tuple[Path, str]]:
    """Yield each file with tables of results, and the text of the whole file."""
    for path in WRITTEN:
        text = path.read_text(encoding="utf-8")
        yield path, _BLOCK.sub(_fill, text)


def _fill(block: "re.Match[str]") -> str:
    start, file, description = block.groups()
    if file:
        description = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return f"{start}\n{format_table(yaml.safe_load(description))}\n\n<!-- end -->"


def format_table(description: object) -> str:
    """Return the described table in Markdown."""
    table = TypeAdapter(ResultTable).validate_python(description)
    if table.ladder:
        run = replace(_load(table.ladder), shown=table.metrics)
        return body(ladder(run))
    if table.effects:
        return body(Table("results", "", _contributions(table)))
    if table.decisions:
        return body(Table("results", "", _decisions(table)))
    cells = {table.head: list(map(Cell, table.rows))}
    for columns in table.columns:
        for head, column_cells in _columns(table, columns):
            cells[head] = column_cells
    records = records_of(cells)
    for record in records:
        name, *numbers = record.values()
        if all(cell.is_blank for cell in numbers):
            raise UserError(f"{name.text!r}: no finished trial of this rung")
    return body(Table("results", "", records))


def _contributions(table: ResultTable) -> list[Record]:
    """Return a record per step, with its Shapley values in the runs of a table."""
    records: dict[str, Record] = {}
    for title, folder in table.effects.items():
        for metric in table.metrics:
            for effect in compute_effects(_load(folder), metric):
                if effect.kind == "shapley" and effect.is_behind == table.behind:
                    record = records.setdefault(effect.name, {table.head: Cell(effect.name)})
                    change = format_change(metric, effect.decision.difference)
                    text = f"{change} ({effect.decision.outcome})"
                    record[f"{title}: {METRICS[metric].head}"] = Cell(text)
    return list(records.values())


def _decisions(table: ResultTable) -> list[Record]:
    """Return a record per rung, with its mean rank and its decisions against the reference."""
    (metric,) = table.metrics
    folders = [parse_path(str(SHIPPED / folder)) for folder in table.decisions.values()]
    summary = rank(collect(folders, None, metric).frame, metric, "average").summary
    records: dict[str, Record] = {}
    for label, mean_rank in summary["mean_rank"].items():
        records[str(label)] = {
            table.head: Cell(str(label)),
            "Mean rank": Cell.formatted(mean_rank, ".1f"),
        }
    for title, folder in table.decisions.items():
        run = _load(folder)
        others = [label for label in run.labels.values() if label != table.against]
        comparisons = [Comparison(label, (table.against,), metric) for label in others]
        records[table.against][title] = Cell.of(None)
        for decision in decide_sums(run, comparisons):
            text = format_change(metric, decision.difference)
            if decision.outcome != "undecided":
                text += f" ({decision.outcome})"
            records[decision.method][title] = Cell(text)
    return list(records.values())


@cache
def _load(folder: str) -> Run:
    return load(parse_path(str(SHIPPED / folder)))


def _columns(table: ResultTable, columns: Columns) -> Iterator[tuple[str, list[Cell]]]:
    runs = list(map(_load, columns.runs))
    rows = []
    for name, rung in table.rows.items():
        label = columns.rung.format(rung)
        if columns.rungs:
            label = columns.rungs.get(name, "")
        rows.append((label, _trials(runs, label)))
    if all(trials.empty for _, trials in rows):
        raise UserError(f"{columns.runs}: no finished trial of these rungs")
    prefix = f"{columns.title}: " if columns.title else ""
    if columns.origin:
        for head, cells in _origins(rows):
            yield prefix + head, cells
    for metric in columns.metrics:
        if metric == _GAIN:
            yield f"{prefix}NLL gain (%)", _gains([trials for _, trials in rows])
        else:
            yield prefix + METRICS[metric].head, _cells(rows, metric, columns)


def _trials(runs: Sequence[Run], label: str) -> pd.DataFrame:
    """Return the distinct finished trials of a rung, with the bounds of their intervals."""
    parts = []
    for run in runs:
        rows = run.done[run.done["rung"].map(run.labels) == label]
        rows = rows.assign(run=Path(str(run.out)).relative_to(SHIPPED).parts[1])
        for end in ("lower", "upper"):
            bounds = pd.DataFrame(run.intervals[end].unstack("metric"))
            rows = rows.join(bounds.add_prefix(f"{end}/"), on="spec_hash")
        parts.append(rows)
    trials = pd.concat(parts).drop_duplicates("spec_hash")
    for slot in ("network", "head", "posthoc"):
        settings = {_recipe(text) for text in trials[slot].dropna()}
        if len(settings) > 1:
            raise UserError(f"{label!r} has several {slot} settings; name fewer runs")
    return trials


def _recipe(text: str) -> str:
    """Return the settings of a slot that all trials of a row share."""
    settings: dict[str, Any] = json.loads(text)
    for name in ("seed", "backbone", "weights"):
        settings.pop(name, None)
    return json.dumps(settings)


def _origins(rows: Rows) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the column of runs, if there are several, and that of settings that heads differ in."""
    runs = [" ".join(trials["run"].unique()) for _, trials in rows]
    if len({run for run in runs if run}) > 1:
        yield "Run", list(map(Cell, runs))
    heads: list[dict[str, Any]] = []
    for _, trials in rows:
        texts = trials["head"].dropna()
        heads.append(json.loads(texts.iloc[0]) if len(texts) else {})
    settings = dict.fromkeys(_HEAD_SETTINGS, False)
    for name in settings:
        settings[name] = len({head[name] for head in heads if head}) > 1
    cells = []
    for head in heads:
        parts = []
        for name, differs in settings.items():
            if differs and head:
                parts.append(_HEAD_SETTINGS[name].format(head[name]))
        cells.append(Cell(", ".join(parts)) if parts else Cell.of(None))
    if any(settings.values()):
        yield "Head", cells


def _cells(rows: Rows, metric: str, columns: Columns) -> list[Cell]:
    cells, flags = [], []
    name, kind = column(columns.split, metric), columns.cells
    of_runs = [may_win(run, metric, columns.split) for run in map(_load, columns.runs)]
    for label, trials in rows:
        values = trials[name].astype(float)
        mean, spread = values.mean(), values.std(ddof=1)
        cell = Cell.number(metric, mean, spread if kind == "spread" else float("nan"))
        if kind == "interval" and len(trials):
            ends = trials[[f"lower/{metric}", f"upper/{metric}"]].mean(skipna=False)
            low, high = map(METRICS[metric].format, ends)
            cell = replace(cell, text=f"{cell.text} [{low}, {high}]")
        cells.append(cell)
        flags.append(all(flag.get(label, True) for flag in of_runs))
    if sum(len(trials) > 0 for _, trials in rows) == 1:
        return cells
    return ranked(cells, METRICS[metric], flags)


def _gains(rows: Sequence[pd.DataFrame]) -> list[Cell]:
    base = rows[0][[column("test", "nll"), column("test", "nll_calibration")]].mean()
    cells = [Cell.of(None)]
    for trials in rows[1:]:
        gain = (base.iloc[0] - trials[column("test", "nll")].mean()) / base.iloc[1]
        cells.append(Cell.formatted(100 * gain, ".0f"))
    return cells
