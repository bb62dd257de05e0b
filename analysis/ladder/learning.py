"""The learning curve of post-hoc methods over the number of samples of calib."""

from typing import Any

import pandas as pd

from analysis.ladder.means import spread_over
from analysis.load import Run, cached_per_run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, Record
from tune_calib.spec.metrics import METRICS, column
from tune_calib.text import format_count

SHOWN = ("ece", "nll")
_COLUMNS = ["rung", "label", "samples", "metric", "n", "mean", "sd", "low", "high"]
_RENAMED = {"calib_samples": "samples", "count": "n", "std": "sd", "2.5%": "low", "97.5%": "high"}


@cached_per_run
def curve(run: Run) -> pd.DataFrame:
    """Return a row per (metric, method, number of samples of calib), on test, as fractions.

    The columns low and high are quantiles of the trials. A method that fits nothing to calib has no
    row.
    """
    if run.subsets.empty:
        return pd.DataFrame(columns=_COLUMNS)
    subsets = run.subsets[run.subsets["status"] == "done"]
    trials = pd.concat([subsets, run.done[run.done["rung"].isin(subsets["rung"])]])
    frames = []
    for metric in SHOWN:
        values = trials.astype({column("test", metric): float})
        groups = values.groupby(["rung", "calib_samples"])[column("test", metric)]
        numbers = groups.describe(percentiles=[0.025, 0.975])
        frames.append(numbers.reset_index().rename(columns=_RENAMED).assign(metric=metric))
    rows = pd.concat(frames, ignore_index=True).astype({"samples": int, "n": int})
    return rows.assign(label=rows["rung"].map(run.labels))[_COLUMNS]


def table(run: Run) -> Table:
    rows = curve(run)
    if rows.empty:
        return Table("learning-curve", "", [])
    records: dict[str, Record] = {}
    groups: dict[str, tuple[str, str]] = {}
    points: Any = rows.itertuples()
    for point in points:
        record = records.setdefault(point.label, {run.row_name: Cell(point.label)})
        metric, samples = METRICS[point.metric], f"{point.samples} samples"
        head = f"{metric.head}: {samples}"
        groups[head] = (metric.head, samples)
        record[head] = Cell.number(metric.name, point.mean, point.sd)
    for record in records.values():
        for head in groups:
            record.setdefault(head, NOTHING)
    caption = (
        f"{run.manifest.title}. Test split, by the number of samples of calib to which a method is "
        f"fitted; subsets are stratified, and smaller ones are part of larger ones. Mean ± sd, "
        f"{spread_over(run)}."
    )
    missing = len(run.planned_subsets) - int((run.subsets["status"] == "done").sum())
    if missing:
        caption += f" INCOMPLETE: {format_count(missing, 'trial')} without numbers."
    label = label_of("learning-curve", run.manifest.dataset)
    return Table("learning-curve", caption, [*records.values()], groups=groups, label=label)
