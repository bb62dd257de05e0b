"""The learning curve of post-hoc methods over the number of samples of calib."""

from typing import Any

import pandas as pd

from analysis.ladder.means import spread_over
from analysis.load import Run, cached_per_run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record
from tune_calib.spec.metrics import METRICS, column
from tune_calib.text import format_count

SHOWN = ("ece", "nll")
QUANTILES = (0.025, 0.975)  # of the trials, between which the bands of the figure lie


@cached_per_run
def curve(run: Run) -> pd.DataFrame:
    """Return a row per (method, number of samples of calib, metric), on test, as fractions.

    The columns are rung, label, samples, metric, n, mean, sd, low and high, of which the last two
    are the ``QUANTILES`` over the trials. A method that fits nothing to calib has no row.
    """
    names = ["rung", "label", "samples", "metric", "n", "mean", "sd", "low", "high"]
    if not run.planned_subsets:
        return pd.DataFrame(columns=names)
    subsets = run.subsets[run.subsets["status"] == "done"]
    trials = pd.concat([subsets, run.done[run.done["rung"].isin(subsets["rung"])]])
    rows = []
    groups: Any = trials.groupby(["rung", "calib_samples"])
    for (rung, samples), group in groups:
        for metric in SHOWN:
            values = group[column("test", metric)].dropna().astype(float)
            row = {"rung": rung, "label": run.labels[rung], "samples": int(samples)}
            low, high = values.quantile(list(QUANTILES))
            row |= {"metric": metric, "n": len(values), "mean": values.mean(), "sd": values.std()}
            rows.append(row | {"low": low, "high": high})
    return pd.DataFrame(rows, columns=names)


def table(run: Run) -> Table:
    """Build the table of the learning curve: a row per method, columns by metric and samples."""
    rows = curve(run)
    if not run.planned_subsets:
        return Table("learning-curve", "", [])
    records, groups = [], {}
    for label, of_method in rows.groupby("label", sort=False):
        record: Record = {run.row_name: Cell(str(label))}
        points: Any = of_method.sort_values(["metric", "samples"]).itertuples()
        for row in points:
            metric = METRICS[row.metric]
            head = f"{metric.head}: {row.samples} samples"
            groups[head] = (metric.head, f"{row.samples} samples")
            record[head] = Cell.number(metric.name, row.mean, row.sd)
        records.append(record)
    for head in groups:
        for record in records:
            record.setdefault(head, Cell("-"))
    label = label_of("learning-curve", run.manifest.dataset)
    return Table("learning-curve", describe(run), records, groups=groups, label=label)


def describe(run: Run) -> str:
    """Describe what a point of the learning curve is, and what is missing."""
    text = (
        f"{run.manifest.title}. Test split, by the number of samples of calib to which a method is "
        f"fitted; subsets are stratified, and smaller ones are part of larger ones. Mean ± sd, "
        f"{spread_over(run)}."
    )
    missing = len(run.planned_subsets) - int((run.subsets["status"] == "done").sum())
    if missing:
        text += f" INCOMPLETE: {format_count(missing, 'trial')} without numbers."
    return text
