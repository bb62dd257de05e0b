"""Figures of every suggestion: history, Pareto front and parallel coordinates."""

from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, report_figure
from analysis.search.load import AT_CHANCE, SearchResults
from analysis.search.tables import is_numeric, is_wide, sort_texts
from analysis.tidy import unbeaten
from tune_calib.spec.metrics import METRICS

_STEPS = 6  # at most, between the axes of a row of parallel coordinates
_ABSENT = -0.12  # below the parallel axes, for settings that do not apply
_SHOWN_BEYOND = 0.05  # loss of accuracy beyond the guard that is still shown
_VALUELESS = {AT_CHANCE: "1", "diverged": "x", "crashed": "+", "raced": "|", "stopped": "|"}
_WITHIN, _DEFAULT = style.color(0), style.color(2)
# Label, mark, its size, colour, face and order of drawing.
_GROUPS = (
    ("within the guard", "o", 3.5, _WITHIN, _WITHIN, 2),
    ("loses more accuracy", "o", 3.5, "0.6", "white", 2),
    ("the method's defaults", "D", 5.5, _DEFAULT, _DEFAULT, 2),
    ("chosen", "*", 11, style.CHOSEN, style.CHOSEN, 4),
)


def draw_suggestions(
    axis: Axes, search: SearchResults, table: pd.DataFrame, x: Any, y: Any
) -> None:
    is_done, is_within = table["mean"].notna(), table["is_within"]
    is_chosen = table["number"] == search.outcome.chosen
    masks = (is_within, ~is_within, search.are_defaults(table), is_chosen)
    for mask, (label, mark, size, color, face, zorder) in zip(masks, _GROUPS, strict=True):
        rows = table[is_done & mask]
        if len(rows):
            axis.plot(
                x[rows.index], y[rows.index], linestyle="none", marker=mark, markersize=size,
                color=color, markerfacecolor=face, markeredgewidth=0.8, zorder=zorder,
                label=f"{label} ({len(rows)})" if mark == "o" else label,
            )  # fmt: skip
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)


def best_so_far(table: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Return the best value within the guard up to each suggestion; NaN before the first."""
    within = table["mean"].where(table["is_within"])
    best = within.cummin() if METRICS[metric].is_less_better else within.cummax()
    # A suggestion beyond the guard has no value and leaves the best unchanged.
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
    metric = search.metrics[0]
    table = search.figure_table(metric)
    if table["mean"].isna().all():
        return None
    scale = METRICS[metric].scale
    figure, axis = style.subplots(figsize=(style.TEXT_IN, 2.9))
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
    spare = "ece" if search.metrics == ["accuracy"] else "accuracy"
    up, along = [*search.metrics, spare][:2]
    table = search.figure_table(up)
    table = table.assign(**{up: table["mean"], along: search.figure_table(along)["mean"]})
    if table["mean"].isna().all():
        return None
    scales = METRICS[along].scale, METRICS[up].scale
    figure, axis = style.subplots(figsize=(style.TEXT_IN * 0.85, 3))
    # Only within the guard: others have lost too much accuracy to be chosen.
    best = unbeaten(table[table["is_within"]], [up, along]).drop_duplicates([up, along])
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
        least = baseline["accuracy"] - search.manifest.question.objective.guard - _SHOWN_BEYOND
        if left_out := int((table[along] < least).sum()):
            axis.set_xlim(left=100 * least)
            axis.set_title(f"{left_out} left of the axis", fontsize=7, loc="left")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure


def coordinates(search: SearchResults, table: pd.DataFrame) -> pd.DataFrame:
    """Return heights in [0, 1] on the axis of each setting that varies; NaN if not used."""
    columns = {}
    for name in search.only_settings or search.settings:
        numbers = table[name].dropna()
        if numbers.nunique() > 1:
            if not is_numeric(numbers):
                numbers = numbers.map(str).map(sort_texts(numbers).index)
            elif search.outcome.settings[name].get("log", False):
                numbers = numbers.astype(float).map(np.log10)
            numbers = numbers.astype(float)
            columns[name] = (numbers - numbers.min()) / (numbers.max() - numbers.min())
    return pd.DataFrame(columns, index=table.index)


@SEARCH_FIGURES.register
@report_figure(
    name="parallel",
    title="Parallel coordinates",
    reading=(
        "One line per suggestion; lighter is better, and the thick line is the chosen one. The "
        "most important setting is on the left; a second row continues the lines of the first."
    ),
    caption=SearchResults.long_note,
    absent="no two settings have two values each among the finished suggestions",
    takes=("settings", "metric"),
    position=50,
)
def draw_parallel(search: SearchResults) -> Drawing | None:
    metric = search.metrics[0]
    rows = search.figure_table().dropna(subset="mean")
    is_less_better = METRICS[metric].is_less_better
    # The best are drawn last, on top.
    rows = rows.sort_values("mean", ascending=not is_less_better, kind="stable")
    heights = coordinates(search, rows)
    if len(heights.columns) < 2:
        return None
    # Each row of axes begins with the last setting of the row above.
    steps = len(heights.columns) - 1
    down = -(-steps // _STEPS)
    figure, axes = style.subplots(down, figsize=(style.TEXT_IN, 3.1 * down), squeeze=False)
    values = METRICS[metric].scale * rows["mean"]
    norm = (LogNorm if is_wide(values) else Normalize)(values.min(), values.max())
    cmap = "cividis_r" if is_less_better else "cividis"
    is_chosen = rows["number"] == search.outcome.chosen
    across = -(-steps // down)
    for axis, start in zip(axes.flat, range(0, steps, across), strict=True):
        part = heights.iloc[:, start : start + across + 1]
        lines = [list(enumerate(row)) for row in part.fillna(_ABSENT).to_numpy()]
        shown = LineCollection(lines, cmap=cmap, norm=norm, linewidths=0.9, alpha=0.85)
        shown.set_array(values.to_numpy())
        axis.add_collection(shown)
        chosen = list(compress(lines, is_chosen))
        axis.add_collection(LineCollection(chosen, colors=[style.CHOSEN], linewidths=2.2))
        _axes(axis, search, rows, part)
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=list(axes.flat), pad=0.02)
    bar.set_label(f"select {METRICS[metric].head}; darkest: worst")
    if isinstance(norm, LogNorm):
        style.plain_ticks(bar.ax.yaxis)
    return figure


def _axes(axis: Axes, search: SearchResults, rows: pd.DataFrame, heights: pd.DataFrame) -> None:
    for index, name in enumerate(heights):
        axis.axvline(index, color="0.3", linewidth=0.8, ymin=0, zorder=3)
        has_log = search.outcome.settings[str(name)].get("log", False)
        for height, text in _ticks(rows[name].dropna(), heights[name].dropna(), has_log):
            axis.annotate(
                text, (index, height), xytext=(3, 0), textcoords="offset points", fontsize=6.5,
                va="center", zorder=4,
                bbox={"boxstyle": "square,pad=0.1", "fc": "white", "alpha": 0.8, "lw": 0},
            )  # fmt: skip
    if heights.isna().any(axis=None):
        axis.annotate("not used", (0, _ABSENT), xytext=(-4, 0), textcoords="offset points",
                      fontsize=6.5, ha="right", va="center", annotation_clip=False)  # fmt: skip
    names = [str(name).replace(".", ".\n", 1) for name in heights]
    axis.set_xticks(range(len(names)), names, fontsize=7)
    axis.set(xlim=(-0.05, len(names) - 0.55), ylim=(-0.18, 1.06), yticks=[])
    for side in axis.spines.values():
        side.set_visible(False)
    axis.tick_params(axis="x", length=0)


def _ticks(
    values: "pd.Series[Any]", heights: "pd.Series[float]", has_log: bool
) -> list[tuple[float, str]]:
    if not is_numeric(values) or values.nunique() <= 3:
        texts = [value if isinstance(value, str) else f"{value:g}" for value in values]
        return sorted(set(zip(map(float, heights), texts, strict=True)))
    low, high = float(values.min()), float(values.max())
    middle = (low * high) ** 0.5 if has_log else (low + high) / 2
    return [(height, f"{value:.3g}") for height, value in ((0, low), (0.5, middle), (1, high))]
