"""Tables of shifted images and of the learning curve over the number of samples of calib.

Shifted images are foreign ones (MaC-Cal, table 2; FeDLaS, table 3) and corruptions.
"""

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from analysis.ladder.means import may_win, mean_over, spread_over
from analysis.load import Run, cached_per_run
from analysis.published import published_titles
from analysis.shifts import FAMILIES, MEAN, OOD, SEVERITIES, foreign_sets, kind_title
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, Table
from analysis.text import Cell, capital, full_stops, ranked, records_of
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import NOT_GENERATED, legend
from tune_calib.text import format_count

OOD_SHOWN = ("auroc", "aupr_in", "aupr_out", "fpr95", "auroc_entropy", "fpr95_entropy")
CORRUPTION_SHOWN = ("accuracy", "ece")

_ABOUT = {
    "ood": (
        "Detection of foreign images against the test split (positive) by the largest probability, "
        "or by the entropy where the column says so. AUPR depends on the numbers of images."
    ),
    "corrupt": "Published corruptions (CIFAR-10-C, CIFAR-100-C) of the images of the test split.",
    "generated": (
        "Corruptions generated from the test split, with the kinds and strengths of CIFAR-10-C and "
        "CIFAR-100-C but other random noise."
    ),
}
CURVE_METRICS = ("ece", "nll")
_CURVE = ["rung", "label", "samples", "metric", "n", "mean", "sd", "low", "high"]
_RENAMED = {"calib_samples": "samples", "count": "n", "std": "sd", "2.5%": "low", "97.5%": "high"}
_LEFT_OUT = {"corrupt": "", "generated": f" ({', '.join(NOT_GENERATED)} is not generated)"}


@dataclass(frozen=True)
class Column:
    """A column of a shift table: a metric on a split, with its head and the head of its group."""

    group: str
    metric: str
    head: str
    split: str

    @property
    def name(self) -> str:
        return column(self.split, self.metric)


@dataclass(frozen=True)
class ShiftTable:
    """A shift table with a row per rung: its key, caption and columns."""

    key: str
    caption: str
    columns: tuple[Column, ...]


def shift_tables(run: Run) -> list[ShiftTable]:
    present = set(run.trials.columns[run.trials.notna().any()])
    sets = foreign_sets(str(name).rpartition("/")[0] for name in run.trials)
    titles = {**published_titles(), **run.manifest.titles}
    titles |= {"noise": "Gaussian noise", MEAN: "mean over the sets"}
    columns = []
    for split, metric in product([*sets, f"{OOD}/{MEAN}"], OOD_SHOWN):
        name = split.removeprefix(f"{OOD}/")
        columns.append(Column(titles.get(name, name), metric, METRICS[metric].head, split))
    tables = [ShiftTable(OOD, _ABOUT[OOD], tuple(columns))]
    for family in FAMILIES:
        tables.append(_by_severity(family))
        tables += [_by_kind(run, family, metric, present) for metric in CORRUPTION_SHOWN]
    with_numbers = []
    for table in tables:
        if columns := [column for column in table.columns if column.name in present]:
            with_numbers.append(replace(table, columns=tuple(columns)))
    return with_numbers


def _by_severity(family: str) -> ShiftTable:
    caption = f"{_ABOUT[family]} Means over {len(FAMILIES[family])} kinds{_LEFT_OUT[family]}."
    columns = []
    for metric in CORRUPTION_SHOWN:
        group = METRICS[metric].head
        for severity in SEVERITIES:
            split = f"{family}/{MEAN}/{severity}"
            columns.append(Column(group, metric, f"severity {severity}", split))
        columns.append(Column(group, metric, "mean", f"{family}/{MEAN}"))
    return ShiftTable(f"{family}-severity", caption, tuple(columns))


def _by_kind(run: Run, family: str, metric: str, present: Container[str]) -> ShiftTable:
    names = [name for name in map(str, run.trials) if name.startswith(f"{family}/")]
    evaluated = sorted({name.split("/")[1] for name in names} - {MEAN})
    columns, lacking = [], []
    for kind in dict.fromkeys([*FAMILIES[family], *evaluated]):
        shown = Column(METRICS[metric].head, metric, kind_title(kind), f"{family}/{kind}/{MEAN}")
        columns.append(shown)
        if kind in FAMILIES[family] and shown.name not in present:
            lacking.append(shown.head)
    caption = f"{_ABOUT[family]} {METRICS[metric].title}, means over five severities"
    caption += f"{_LEFT_OUT[family]}."
    if lacking:
        caption += f" Not evaluated: {', '.join(lacking)}; there is therefore no mean over kinds."
    return ShiftTable(f"{family}-kinds-{metric}", caption, tuple(columns))


def means(run: Run, table: ShiftTable) -> pd.DataFrame:
    """Compute the mean and spread of each rung in each column over its ``n`` evaluated trials."""
    rows = []
    for rung, shown in product(run.rungs, table.columns):
        values = run.of_rung(rung.index)[shown.name].astype(float)
        numbers = (values.count(), len(values), values.mean(), values.std())
        rows.append((rung.index, rung.label, shown.split, shown.metric, *numbers))
    names = ["rung", "label", "set", "metric", "n", "of", "mean", "sd"]
    return pd.DataFrame(rows, columns=names)


def table(run: Run, shift: ShiftTable) -> Table:
    """Build the table; rungs that may not win have no mark."""
    numbers = means(run, shift)
    columns, groups = {run.row_name: list(map(Cell, map(run.label, run.rungs)))}, {}
    for shown in shift.columns:
        is_shown = (numbers["set"] == shown.split) & (numbers["metric"] == shown.metric)
        rows: list[Any] = list(numbers[is_shown].itertuples())
        cells = [Cell.number(shown.metric, row.mean, row.sd) for row in rows]
        winners = may_win(run, shown.metric, shown.split)
        cells = ranked(cells, METRICS[shown.metric], winners)
        for index, row in enumerate(rows):
            # A mean over some of the trials must not look like one over all.
            if 0 < row.n < row.of:
                cells[index] = replace(cells[index], text=f"{cells[index].text} (n = {row.n})")
        head = f"{shown.group}: {shown.head}"
        groups[head], columns[head] = (shown.group, shown.head), cells
    return Table(
        shift.key,
        f"{run.manifest.title}. {shift.caption} {capital(mean_over(run))}. {BEST}",
        records_of(columns),
        groups=groups,
        label=label_of(shift.key, run.manifest.dataset),
        notes=full_stops(legend(run.flags())),
    )


@cached_per_run
def curve(run: Run) -> pd.DataFrame:
    """Return a row per (metric, method, number of samples of calib), on test, as fractions.

    The columns low and high are quantiles of the trials. A method that fits nothing to calib has no
    row.
    """
    if run.subsets.empty:
        return pd.DataFrame(columns=_CURVE)
    subsets = run.subsets[run.subsets["status"] == "done"]
    trials = pd.concat([subsets, run.done[run.done["rung"].isin(subsets["rung"])]])
    frames = []
    for metric in CURVE_METRICS:
        values = trials.astype({column("test", metric): float})
        groups = values.groupby(["rung", "calib_samples"])[column("test", metric)]
        numbers = groups.describe(percentiles=[0.025, 0.975])
        frames.append(numbers.reset_index().rename(columns=_RENAMED).assign(metric=metric))
    rows = pd.concat(frames, ignore_index=True).astype({"samples": int, "n": int})
    return rows.assign(label=rows["rung"].map(run.labels))[_CURVE]


def learning_table(run: Run) -> Table:
    rows = curve(run)
    if rows.empty:
        return Table("learning-curve", "", [])
    labels = list(dict.fromkeys(rows["label"]))
    columns, groups = {run.row_name: list(map(Cell, labels))}, {}
    for (name, samples), points in rows.groupby(["metric", "samples"], sort=False):
        metric, of_label = METRICS[str(name)], points.set_index("label").reindex(labels)
        head = f"{metric.head}: {samples} samples"
        groups[head] = (metric.head, f"{samples} samples")
        columns[head] = list(map(partial(Cell.number, metric), of_label["mean"], of_label["sd"]))
    caption = (
        f"{run.manifest.title}. Test split, by the number of samples of calib to which a method is "
        f"fitted; subsets are stratified, and smaller ones are part of larger ones. Mean ± sd, "
        f"{spread_over(run)}."
    )
    missing = len(run.planned_subsets) - int((run.subsets["status"] == "done").sum())
    if missing:
        caption += f" INCOMPLETE: {format_count(missing, 'trial')} without numbers."
    label = label_of("learning-curve", run.manifest.dataset)
    return Table("learning-curve", caption, records_of(columns), groups=groups, label=label)
