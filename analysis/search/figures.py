"""Figures of a search: its history, its front, importance, and the metric over the settings."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import style
from analysis.ladder.tables import number, printed_scale, title
from analysis.pareto import unbeaten
from analysis.search.axes import draw_heat_map, draw_share, draw_tried, is_wide
from analysis.search.load import Search
from analysis.search.sensitivity import heat_map
from tune_calib.names import METRICS

_WITHIN, _BEYOND, _CHOSEN, _DEFAULT = style.color(0), "0.6", style.color(3), style.color(2)
_FAILED = {"diverged": "x", "crashed": "+", "stopped": "v"}
_MOST_SETTINGS = 6
_SHOWN_BEYOND = 0.05  # accuracy beyond the guard that the front's figure shows


def best_so_far(table: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """The best value within the guard up to each suggestion; NaN before the first."""
    within = table["mean"].where(table["is_within"])
    best = within.cummin() if METRICS[metric].direction == "min" else within.cummax()
    return best.ffill()


def draw_history(search: Search) -> Figure | None:
    """The metric by number of the suggestion, and the best so far; what failed at the top.

    Returns:
        None if no suggestion is done.
    """
    metric, table = search.metrics[0], search.table()
    if table["mean"].isna().all():
        return None
    scale = printed_scale(metric)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 2.9))
    baseline = scale * search.outcome.baseline[metric]
    axis.axhline(baseline, color="0.3", linestyle=":", linewidth=1,
                 label=f"baseline, cross entropy ({number(metric, baseline / scale)})")  # fmt: skip
    best = scale * best_so_far(table, metric)
    axis.step(table["number"], best, where="post", color=_CHOSEN, linewidth=1.2,
              label="best so far within the guard")  # fmt: skip
    for rows, label, look in _groups(search, table):
        axis.plot(rows["number"], scale * rows["mean"], label=label, **look)
    _failures(axis, table)
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    axis.set(xlabel="number of the suggestion", ylabel=f"select {title(metric)}")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    axis.set_title(_reading(search), fontsize=7)
    return figure


def _reading(search: Search) -> str:
    """What a mark is of, how many there are, and what the guard is."""
    guard = f"guard: at most {100 * search.guard:g} % of accuracy lost"
    return f"{search.seeds()}; {search.ended()} suggestions; {guard}"


def _groups(search: Search, table: pd.DataFrame) -> list[tuple[pd.DataFrame, str, dict[str, Any]]]:
    """Suggestions that are done, by what they mean for the choice: rows, label and look."""
    is_done = table["mean"].notna()
    is_default = search.are_defaults(table)
    groups = [
        (is_done & table["is_within"], "within the guard", _WITHIN, "o", _WITHIN),
        (is_done & ~table["is_within"], "loses more accuracy", _BEYOND, "o", "white"),
        (is_done & is_default, "the method's defaults", _DEFAULT, "D", _DEFAULT),
        (is_done & (table["number"] == search.chosen), "chosen", _CHOSEN, "*", _CHOSEN),
    ]
    sizes = {"o": 3.5, "D": 5.5, "*": 11}
    return [
        (
            table[chosen],
            f"{label} ({int(chosen.sum())})" if mark == "o" else label,
            {"color": color, "marker": mark, "markersize": sizes[mark], "linestyle": "none",
             "markerfacecolor": face, "markeredgewidth": 0.8, "zorder": 4 if mark == "*" else 2},
        )
        for chosen, label, color, mark, face in groups
        if chosen.any()
    ]  # fmt: skip


def _failures(axis: Axes, table: pd.DataFrame) -> None:
    """What has no value, at the upper edge."""
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


def front(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """The rows that no other one beats; of equal ones the first."""
    return unbeaten(rows, metrics).drop_duplicates(metrics)


def draw_front(search: Search) -> Figure | None:
    """Two metrics of every suggestion and those within the guard that no other one beats in both.

    The first two metrics that are searched for; of one alone, it and accuracy (or ECE).

    Returns:
        None if no suggestion is done.
    """
    spare = "ece" if search.metrics == ["accuracy"] else "accuracy"
    up, along = [*search.metrics, spare][:2]
    table = search.table(up)
    table = table.assign(**{up: table["mean"], along: search.table(along)["mean"]})
    if table["mean"].isna().all():
        return None
    scales = printed_scale(along), printed_scale(up)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.85, 3))
    best = front(table[table["is_within"]], [up, along])
    axis.plot(
        scales[0] * best[along], scales[1] * best[up], color="black", linewidth=1, marker="o",
        markersize=6, markerfacecolor="none", label=f"front within the guard ({len(best)})",
        zorder=3,
    )  # fmt: skip
    for rows, label, look in _groups(search, table):
        axis.plot(scales[0] * rows[along], scales[1] * rows[up], label=label, **look)
    baseline = search.outcome.baseline
    if {up, along} <= baseline.keys():
        axis.plot(
            scales[0] * baseline[along], scales[1] * baseline[up], linestyle="none", marker="P",
            markersize=7, color="0.2", label="baseline, cross entropy",
        )  # fmt: skip
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    axis.set(xlabel=f"select {title(along)}", ylabel=f"select {title(up)}")
    cut = _cut(axis, search, table[along]) if along == "accuracy" else ""
    axis.set_title(_reading(search).replace("; guard", f"{cut}\nguard"), fontsize=7)
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure


def _cut(axis: Axes, search: Search, accuracy: "pd.Series[float]") -> str:
    """Leave out what lost so much accuracy that the rest would stand on one line; says so."""
    least = search.outcome.baseline["accuracy"] - search.guard - _SHOWN_BEYOND
    left_out = int((accuracy < least).sum())
    if left_out:
        axis.set_xlim(left=100 * least)
    return f", {left_out} left of the axis" if left_out else ""


def draw_importance(search: Search) -> Figure | None:
    """Importance of each setting for each metric, in percent of all.

    Returns:
        None if there is none; ``outcome.importance.statement`` says why.
    """
    told = search.outcome.importance
    if not told.shares:
        return None
    shares = 100 * pd.DataFrame(told.shares).reindex(search.settings[::-1]).fillna(0)
    height = 0.22 * len(shares) * max(1, 0.7 * len(shares.columns)) + 0.9
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, height))
    width = 0.8 / len(shares.columns)
    for place, metric in enumerate(shares):
        places = np.arange(len(shares)) + width * ((len(shares.columns) - 1) / 2 - place)
        bars = axis.barh(
            places, shares[metric], width, color=style.color(place), label=title(str(metric))
        )
        axis.bar_label(bars, fmt="%.0f", padding=2, fontsize=6.5)
    axis.set_yticks(range(len(shares)), list(shares.index))
    axis.set(xlabel="importance (%)", xlim=(0, 1.1 * shares.max().max()))
    if len(shares.columns) > 1:
        axis.legend(frameon=False, fontsize=7)
    axis.set_title(f"PED-ANOVA: best {told.top} against all {told.done} done", fontsize=7)
    return figure


def drawn_settings(search: Search) -> list[str]:
    """The most important settings that have two values among the suggestions that are done."""
    rows = search.table().dropna(subset="mean")
    varied = [name for name in search.settings if rows[name].nunique() > 1]
    return varied[:_MOST_SETTINGS]


def draw_sensitivity(search: Search) -> Figure | None:
    """The metric against each of the most important settings.

    Returns:
        None if no setting has two values.
    """
    names = drawn_settings(search)
    if not names:
        return None
    metric, table = search.metrics[0], search.table()
    across = min(3, len(names))
    down = -(-len(names) // across)
    size = (max(style.COLUMN_IN, style.TEXT_IN * across / 3), 2.1 * down + 0.5)
    figure, axes = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        default, is_log = search.defaults.get(name), search.is_log(name)
        published = {point[name] for point in search.published if name in point} - {default}
        draw_tried(
            axis, table, name, metric, default, is_log, search.chosen, sorted(published, key=str)
        )
    for axis in axes[:, 1:].flat:
        axis.set_ylabel("")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.legend(
        handles=_keys(search), loc="outside lower center", ncols=min(2, across), frameon=False,
        fontsize=7,
    )  # fmt: skip
    figure.suptitle(f"{search.ended()} suggestions", fontsize=7)
    return figure


def _keys(search: Search) -> list[Line2D]:
    has_spread = bool(search.table()["sd"].notna().any())
    each = f"a suggestion, {search.seeds()}" + (" ± sd" if has_spread else "")
    return [
        Line2D([], [], color="0.55", marker="o", markersize=3, linestyle="none", label=each),
        Line2D([], [], color=style.color(0), marker="s", markersize=3.5,
               label="median and quartiles over the other settings"),
        Line2D([], [], color=style.color(3), marker="*", markersize=8, linestyle="none",
               label="chosen"),
        Line2D([], [], color=style.color(3), linestyle="--", label="the method's default"),
        Line2D([], [], color=style.color(3), linestyle=":", label="other published value"),
    ]  # fmt: skip


def draw_pair(search: Search) -> Figure | None:
    """Heat map of the metric over the two most important settings.

    Returns:
        None if fewer than two settings have two values.
    """
    table = search.table()
    pair = _pair(search, table)
    if pair is None:
        return None
    grid = heat_map(table, *pair, bins=6)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.75, 3.2))
    draw_heat_map(axis, grid, search.metrics[0], search.defaults)
    axis.set_title(
        f"mean of the suggestions in a cell; {search.ended()}; framed: the method's defaults",
        fontsize=7,
    )  # fmt: skip
    return figure


def _pair(search: Search, table: pd.DataFrame) -> tuple[str, str] | None:
    """The two most important settings that have two values beside each other."""
    names = drawn_settings(search)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            both = table.dropna(subset=[one, other, "mean"])
            if both[one].nunique() > 1 and both[other].nunique() > 1:
                return other, one
    return None


def draw_shares(search: Search) -> Figure | None:
    """The share of the suggestions within a distance of the best.

    Returns:
        None if fewer than two suggestions are within the guard.
    """
    table = search.within_guard()
    if table["mean"].notna().sum() < 2:
        return None
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, 2.6))
    draw_share(axis, table, search.metrics[0])
    axis.set(ylabel="suggestions (%)")
    axis.set_title(f"{search.ended()} suggestions", fontsize=7)
    return figure
