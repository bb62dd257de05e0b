"""The learning curve of post-hoc methods over the number of samples of calib."""

from functools import partial

import pandas as pd

from analysis.ladder.means import spread_over
from analysis.load import Run, cached_per_run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, records_of
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
