"""The metric by number of the suggestion, and the best so far."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import is_wide
from analysis.search.load import SearchResults
from analysis.search.marks import CHOSEN, caption, describe_rows, groups
from analysis.svg import label_points
from tune_calib.spec.metrics import METRICS

_FAILED = {"diverged": "x", "crashed": "+", "stopped": "v"}


def best_so_far(table: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Return the best value within the guard up to each suggestion; NaN before the first."""
    within = table["mean"].where(table["is_within"])
    best = within.cummin() if METRICS[metric].is_less_better else within.cummax()
    # A suggestion beyond the guard has no value here: the best before it goes on.
    return best.ffill()


def draw_history(search: SearchResults) -> Drawing | None:
    """Draw the metric by number of the suggestion, and the best so far; what failed at the top."""
    metric = search.metrics[0]
    table = search.table(metric)
    if table["mean"].isna().all():
        return None
    scale = METRICS[metric].scale
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 2.9))
    baseline = search.outcome.baseline.get(metric)
    if baseline is not None:
        label = f"baseline, cross entropy ({METRICS[metric].format(baseline)})"
        axis.axhline(scale * baseline, color="0.3", linestyle=":", linewidth=1, label=label)
    best = scale * best_so_far(table, metric)
    axis.step(table["number"], best, where="post", color=CHOSEN, linewidth=1.2,
              label="best so far within the guard")  # fmt: skip
    for rows, label, look in groups(search, table):
        (marks,) = axis.plot(rows["number"], scale * rows["mean"], label=label, **look)
        label_points(marks, describe_rows(search, rows))
    _failures(axis, table)
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    style.whole_ticks(axis.xaxis)
    axis.set(xlabel="number of the suggestion", ylabel=f"select {METRICS[metric].head}")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure


def _failures(axis: Axes, table: pd.DataFrame) -> None:
    """Draw what has no value at the upper edge."""
    if table["status"].isin(list(_FAILED)).any():
        axis.margins(y=0.12)  # above what has one
    for status, mark in _FAILED.items():
        rows = table[table["status"] == status]
        if len(rows):
            axis.plot(
                rows["number"], [0.97] * len(rows), transform=axis.get_xaxis_transform(),
                linestyle="none", marker=mark, markersize=4.5, color="0.2",
                label=f"{status} ({len(rows)}; no value)",
            )  # fmt: skip


SEARCH_FIGURES.register(
    Figure(
        name="history",
        title="History of the search",
        reading=(
            "Each suggestion in the order in which it was made; the line is the best within the "
            "guard so far. Marks at the upper edge have no value."
        ),
        draw=draw_history,
        caption=caption,
        absent="no suggestion is done",
        takes=("metric",),
        position=10,
    )
)
