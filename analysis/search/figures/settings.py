"""Figures over the settings: importance, sensitivity, a heat map, and the share that is good."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import draw_heat_map, draw_share, draw_tried
from analysis.search.load import SearchResults
from analysis.search.sensitivity import heat_map
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS


def draw_sensitivity(search: SearchResults) -> Drawing | None:
    """Draw the metric against each of the most important settings."""
    names = search.shown_settings()
    if not names:
        return None
    table = search.table()
    across = min(3, len(names))
    down = -(-len(names) // across)
    size = (max(style.COLUMN_IN, style.TEXT_IN * across / 3), 2.1 * down + 0.5)
    figure, axes = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        default = search.defaults.get(name)
        published = {point[name] for point in search.published if name in point} - {default}
        draw_tried(
            axis, table, name, search.metrics[0], default, search.is_log(name), search.chosen,
            sorted(published, key=str), search.describe,
        )  # fmt: skip
    for axis in axes[:, 1:].flat:
        axis.set_ylabel("")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    each = f"a suggestion, {search.seeds()}" + " ± sd" * bool(table["sd"].notna().any())
    blue, red = style.color(0), style.color(3)
    handles = [
        Line2D([], [], color="0.55", marker="o", markersize=3, linestyle="none", label=each),
        Line2D([], [], color=blue, marker="s", markersize=3.5,
               label="median and quartiles over the other settings"),
        Line2D([], [], color=red, marker="*", markersize=8, linestyle="none", label="chosen"),
        Line2D([], [], color=red, linestyle="--", label="the method's default"),
        Line2D([], [], color=red, linestyle=":", label="other published value"),
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(2, across), frameon=False,
        fontsize=7,
    )  # fmt: skip
    return figure


def draw_importance(search: SearchResults) -> Drawing | None:
    """Draw the importance of each setting for each metric, in percent of all."""
    importance = search.outcome.importance
    if not importance.shares:
        return None
    # Horizontal bars are counted from below, and the most important one is to stand on top.
    shares = 100 * pd.DataFrame(importance.shares).reindex(search.settings[::-1]).fillna(0)
    count = len(shares.columns)
    height = 0.22 * len(shares) * max(1, 0.7 * count) + 0.9
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, height))
    width = 0.8 / count
    for index, metric in enumerate(shares):
        heights = np.arange(len(shares)) + width * ((count - 1) / 2 - index)
        bars = axis.barh(heights, shares[metric], width, color=style.color(index),
                         label=METRICS[str(metric)].head)  # fmt: skip
        axis.bar_label(bars, fmt="%.0f", padding=2, fontsize=6.5)
    axis.set_yticks(range(len(shares)), list(shares.index))
    axis.set(xlabel="importance (%)", xlim=(0, 1.1 * shares.max().max()))
    if count > 1:
        axis.legend(frameon=False, fontsize=7)
    return figure


def _describe_importance(search: SearchResults) -> str:
    importance = search.outcome.importance
    if not importance.shares:
        return search.note()
    return f"The best {importance.top} are compared with all {importance.done} that are done."


def draw_pair(search: SearchResults) -> Drawing | None:
    """Draw a heat map of the metric over two settings, the most important ones unless chosen."""
    if len(search.only_settings) not in (0, 2):
        raise UserError(f"heat_map shows two settings, not {len(search.only_settings)}")
    table = search.table()
    done = table.dropna(subset="mean")
    for across, down in combinations(search.shown_settings(), 2):
        if (done.dropna(subset=[across, down])[[across, down]].nunique() > 1).all():
            break
    else:
        return None
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.75, 3.2))
    grid, counts = (heat_map(table, down, across, 6, part) for part in ("mean", "count"))
    draw_heat_map(axis, grid, search.metrics[0], search.defaults, counts)
    return figure


def draw_shares(search: SearchResults) -> Drawing | None:
    """Draw the share of the suggestions within a distance of the best."""
    table = search.within_guard()
    if table["mean"].notna().sum() < 2:
        return None
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, 2.6))
    draw_share(axis, table, search.metrics[0])
    axis.set(ylabel="suggestions (%)")
    axis.set_title("")  # the caption states how many there are
    return figure


SEARCH_FIGURES.register(
    Figure(
        name="sensitivity",
        title="The metric over the most important settings",
        reading=(
            "The other settings differ from mark to mark. Squares: the median of parts with "
            "equally many suggestions, the band their quartiles."
        ),
        draw=draw_sensitivity,
        caption=SearchResults.note,
        absent="no setting has two values among the suggestions that are done",
        takes=("settings", "metric"),
        position=20,
    )
)
SEARCH_FIGURES.register(
    Figure(
        name="importance",
        title="Importance of the settings",
        reading="How differently the best suggestions and all of them are spread (PED-ANOVA).",
        draw=draw_importance,
        caption=_describe_importance,
        absent=lambda search: search.outcome.importance.statement,
        position=30,
    )
)
SEARCH_FIGURES.register(
    Figure(
        name="heat_map",
        title="The metric over two settings",
        reading=(
            "Mean and number (n) of the suggestions in a cell; darkest: the worst mean; empty: not "
            "tried; framed: the method's defaults."
        ),
        draw=draw_pair,
        caption=SearchResults.note,
        absent="no two settings have two values each among the suggestions that are done",
        takes=("settings", "metric"),
        position=40,
    )
)
SEARCH_FIGURES.register(
    Figure(
        name="share",
        title="Distance from the best suggestion",
        reading=(
            "Share of the suggestions within a distance of the best that keeps the guard; those "
            "beyond the guard or without a value count as far away."
        ),
        draw=draw_shares,
        caption=SearchResults.note,
        absent="fewer than two suggestions are within the guard",
        takes=("metric",),
        position=70,
    )
)
