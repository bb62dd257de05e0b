"""Figures with a mark for each suggestion: the history of a search, and a Pareto front."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, report_figure
from analysis.search.load import AT_CHANCE, SearchResults
from analysis.search.sensitivity import is_wide
from analysis.svg import label_points
from analysis.tidy import unbeaten
from tune_calib.spec.metrics import METRICS

_SHOWN_BEYOND = 0.05  # loss of accuracy beyond the guard that is still shown
_VALUELESS = {AT_CHANCE: "1", "diverged": "x", "crashed": "+", "stopped": "v"}
_WITHIN, _DEFAULT = style.color(0), style.color(2)
# Label, mark, its size, colour and face.
_GROUPS = (
    ("within the guard", "o", 3.5, _WITHIN, _WITHIN),
    ("loses more accuracy", "o", 3.5, "0.6", "white"),
    ("the method's defaults", "D", 5.5, _DEFAULT, _DEFAULT),
    ("chosen", "*", 11, style.CHOSEN, style.CHOSEN),
)


def draw_suggestions(
    axis: Axes, search: SearchResults, table: pd.DataFrame, x: Any, y: Any
) -> None:
    """Draw a mark with a tooltip for each finished suggestion of each of ``_GROUPS``."""
    is_done, is_within = table["mean"].notna(), table["is_within"]
    masks = (is_within, ~is_within, search.are_defaults(table), table["number"] == search.chosen)
    for mask, (label, mark, size, color, face) in zip(masks, _GROUPS, strict=True):
        rows = table[is_done & mask]
        if len(rows):
            (marks,) = axis.plot(
                x[rows.index], y[rows.index], linestyle="none", marker=mark, markersize=size,
                color=color, markerfacecolor=face, markeredgewidth=0.8,
                zorder=4 if mark == "*" else 2,
                label=f"{label} ({len(rows)})" if mark == "o" else label,
            )  # fmt: skip
            label_points(marks, search.describe(rows))
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)


def best_so_far(table: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Return the best value within the guard up to each suggestion; NaN before the first."""
    within = table["mean"].where(table["is_within"])
    best = within.cummin() if METRICS[metric].is_less_better else within.cummax()
    # A suggestion beyond the guard has no value here and leaves the best unchanged.
    return best.ffill()


@SEARCH_FIGURES.register
@report_figure(
    name="history",
    title="History of the search",
    reading=(
        "Suggestions in the order in which they were made; the line is the best within the "
        "guard so far. Marks at the upper edge have no value."
    ),
    caption=SearchResults.long_note,
    absent="no suggestion is done",
    takes=("metric",),
    position=10,
)
def draw_history(search: SearchResults) -> Drawing | None:
    """Draw the metric of each suggestion in order, and the best so far; failures at the top."""
    metric = search.metrics[0]
    table = search.figure_table(metric)
    if table["mean"].isna().all():
        return None
    scale = METRICS[metric].scale
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 2.9))
    baseline = search.outcome.baseline.get(metric)
    if baseline is not None:
        label = f"baseline, cross entropy ({METRICS[metric].format(baseline)})"
        axis.axhline(scale * baseline, color="0.3", linestyle=":", linewidth=1, label=label)
    best = scale * best_so_far(table, metric)
    axis.step(table["number"], best, where="post", color=style.CHOSEN, linewidth=1.2,
              label="best so far within the guard")  # fmt: skip
    draw_suggestions(axis, search, table, table["number"], scale * table["mean"])
    if table["status"].isin(list(_VALUELESS)).any():
        axis.margins(y=0.12)  # above the suggestions with a value
    for status, mark in _VALUELESS.items():
        rows = table[table["status"] == status]
        if len(rows):
            axis.plot(
                rows["number"], [0.97] * len(rows), transform=axis.get_xaxis_transform(),
                linestyle="none", marker=mark, markersize=4.5, color="0.2",
                label=f"{status} ({len(rows)}; no value)",
            )  # fmt: skip
    style.whole_ticks(axis.xaxis)
    axis.set(xlabel="number of the suggestion", ylabel=f"select {METRICS[metric].head}")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure


def front(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return the Pareto front of the rows; of equal rows, the first."""
    return unbeaten(rows, metrics).drop_duplicates(metrics)


@SEARCH_FIGURES.register
@report_figure(
    name="front",
    title="Pareto front of two metrics",
    reading="The guard limits the loss of accuracy against the baseline of the same network.",
    caption=SearchResults.long_note,
    absent="no suggestion is done",
    takes=("metric",),
    position=60,
)
def draw_front(search: SearchResults) -> Drawing | None:
    """Draw two metrics of every suggestion, and the Pareto front of those within the guard."""
    spare = "ece" if search.metrics == ["accuracy"] else "accuracy"
    up, along = [*search.metrics, spare][:2]
    table = search.figure_table(up)
    table = table.assign(**{up: table["mean"], along: search.figure_table(along)["mean"]})
    if table["mean"].isna().all():
        return None
    scales = METRICS[along].scale, METRICS[up].scale
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.85, 3))
    # Only within the guard: others have lost too much accuracy to be chosen.
    best = front(table[table["is_within"]], [up, along])
    axis.plot(
        scales[0] * best[along], scales[1] * best[up], color="black", linewidth=1, marker="o",
        markersize=6, markerfacecolor="none", label=f"front within the guard ({len(best)})",
        zorder=3,
    )  # fmt: skip
    draw_suggestions(axis, search, table, scales[0] * table[along], scales[1] * table[up])
    baseline = search.outcome.baseline
    if {up, along} <= baseline.keys():
        axis.plot(
            scales[0] * baseline[along], scales[1] * baseline[up], linestyle="none", marker="P",
            markersize=7, color="0.2", label="baseline, cross entropy",
        )  # fmt: skip
    axis.set(xlabel=f"select {METRICS[along].head}", ylabel=f"select {METRICS[up].head}")
    if along == "accuracy":
        # A suggestion with a large loss of accuracy would squeeze the others together.
        least = baseline["accuracy"] - search.guard - _SHOWN_BEYOND
        if left_out := int((table[along] < least).sum()):
            axis.set_xlim(left=100 * least)
            axis.set_title(f"{left_out} left of the axis", fontsize=7, loc="left")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure
