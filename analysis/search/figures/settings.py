"""Figures over the settings: sensitivity, importance, a heat map, and the near-best share."""

from collections.abc import Mapping
from itertools import combinations, repeat
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis import style
from analysis.figure import SEARCH_FIGURES, report_figure
from analysis.search.load import SearchResults
from analysis.search.tables import (
    MARGINS,
    distances,
    find_varied,
    heat_map,
    is_numeric,
    is_wide,
    sort_texts,
    trend,
)
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.samplers import SAMPLERS

_ROOM = 36  # characters of the names below an axis of ``sensitivity``
_PAIRED = 4  # settings of which ``heat_map`` shows each pair


@SEARCH_FIGURES.register
@report_figure(
    name="sensitivity",
    title="Sensitivity to the most important settings",
    reading=(
        "Each mark is a suggestion, with its own values of the other settings. Squares show "
        "medians of bins with equally many suggestions, and the band shows their quartiles."
    ),
    caption=SearchResults.note,
    absent="no setting has two values among the finished suggestions",
    takes=("settings", "metric"),
    position=20,
)
def draw_sensitivity(search: SearchResults) -> Drawing | None:
    names = search.shown_settings()
    is_local = SAMPLERS[search.manifest.question.sampler].is_local
    if is_local:
        names = [name for name in names if len(find_varied(search, name)) > 1]
    if not names:
        return None
    table = search.figure_table()
    across = min(3, len(names))
    down = -(-len(names) // across)
    size = (max(style.COLUMN_IN, style.TEXT_IN * across / 3), 2.1 * down + 0.5)
    figure, axes = style.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        _draw_tried(axis, search, table, name)
    for axis in axes[:, 1:].flat:
        axis.set_ylabel("")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    label = f"a suggestion, {search.seeds()}"
    if table["sd"].notna().any():
        label += " ± sd"
    summary = "this setting alone changed" if is_local else "median and quartiles over the others"
    blue, red = style.color(0), style.CHOSEN
    handles = [
        Line2D([], [], color="0.55", marker="o", markersize=3, linestyle="none", label=label),
        Line2D([], [], color=blue, marker="s", markersize=3.5, label=summary),
        Line2D([], [], color=red, marker="*", markersize=8, linestyle="none", label="chosen"),
        Line2D([], [], color=red, linestyle="--", label="the method's default"),
        Line2D([], [], color=red, linestyle=":", label="other published value"),
    ]  # fmt: skip
    style.legend_below(figure, handles, min(2, across))
    return figure


def _draw_tried(axis: Axes, search: SearchResults, table: pd.DataFrame, setting: str) -> None:
    metric, default = METRICS[search.metrics[0]], search.defaults.get(setting)
    if SAMPLERS[search.manifest.question.sampler].is_local:
        table = table[table["number"].isin(find_varied(search, setting).keys())]
    rows = table.dropna(subset=[setting, "mean"])
    along = trend(table, setting)
    positions, names = _positions(rows[setting])
    axis.errorbar(
        positions, metric.scale * rows["mean"], yerr=metric.scale * rows["sd"].fillna(0),
        linestyle="none", marker="o", markersize=2.5, color="0.55", elinewidth=0.5, alpha=0.7,
        linewidth=0, zorder=1,
    )  # fmt: skip
    line = along["value"].map(names.index) if names else along["value"]
    low, median, high = (metric.scale * along[name] for name in ("low", "median", "high"))
    color = style.color(0)
    axis.plot(line, median, color=color, marker="s", markersize=3.5, linewidth=1.2)
    axis.fill_between(line, low, high, color=color, alpha=0.25, linewidth=0)
    is_chosen = rows["number"] == search.outcome.chosen
    axis.plot(
        positions[is_chosen], metric.scale * rows.loc[is_chosen, "mean"], linestyle="none",
        marker="*", markersize=9, color=style.CHOSEN, zorder=3,
    )  # fmt: skip
    if names:
        is_long = sum(map(len, names)) + len(names) > _ROOM
        axis.set_xticks(range(len(names)), names, rotation=90 if is_long else 0)
        axis.set_xlim(-0.5, len(names) - 0.5)
    elif search.outcome.settings[setting].get("log"):
        axis.set_xscale("log")
    others = sorted(search.others_of(setting), key=str)
    for value, dashes in [*zip(others, repeat(":")), (default, "--")]:
        if value is not None and (not names or str(value) in names):
            position = names.index(str(value)) if names else float(value)
            axis.axvline(position, color=style.CHOSEN, linestyle=dashes, linewidth=1, zorder=0)
    if is_wide(rows["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    axis.set(xlabel=setting, ylabel=f"select {metric.head}")


def _positions(values: "pd.Series[Any]") -> tuple[Any, list[str]]:
    """Return positions on an axis, and the names of its ticks (none for numbers)."""
    if is_numeric(values):
        return values.astype(float), []
    texts, names = values.map(str), sort_texts(values)
    # Positions of the same name are spread so that marks do not cover each other.
    order, sizes = texts.groupby(texts).cumcount(), texts.groupby(texts).transform("size")
    return texts.map(names.index) + 0.5 * ((order + 0.5) / sizes - 0.5), names


@SEARCH_FIGURES.register
@report_figure(
    name="importance",
    title="Importance of the settings",
    reading=(
        "Difference between the distributions of a setting in the best suggestions and in all "
        "of them (PED-ANOVA)."
    ),
    caption=lambda search: (
        f"The best {search.outcome.importance.top} are compared with all "
        f"{search.outcome.importance.done} finished ones."
    ),
    absent=lambda search: search.outcome.importance.statement,
    position=30,
)
def draw_importance(search: SearchResults) -> Drawing | None:
    importance = search.outcome.importance
    if not importance.shares:
        return None
    # Reversed, since horizontal bars are counted from below.
    shares = 100 * pd.DataFrame(importance.shares).reindex(search.settings[::-1]).fillna(0)
    count = len(shares.columns)
    height = 0.22 * len(shares) * max(1, 0.7 * count) + 0.9
    figure, axis = style.subplots(figsize=(style.COLUMN_IN, height))
    width = 0.8 / count
    for index, metric in enumerate(shares):
        heights = np.arange(len(shares)) + width * ((count - 1) / 2 - index)
        errors = None
        if metric in importance.intervals:
            ends = pd.DataFrame(importance.intervals[metric], ["low", "high"]).T
            low, high = (100 * ends.reindex(shares.index)[end] for end in ends)
            errors = [(shares[metric] - low).clip(lower=0), (high - shares[metric]).clip(lower=0)]
        bars = axis.barh(
            heights, shares[metric], width, xerr=errors, color=style.color(index),
            label=METRICS[str(metric)].head, error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
        )  # fmt: skip
        axis.bar_label(bars, labels=[f"{share:.0f}" for share in shares[metric]], padding=2,
                       fontsize=6.5)  # fmt: skip
    axis.set_yticks(range(len(shares)), list(shares.index))
    axis.margins(x=0.12)
    axis.set(xlabel="importance (%)")
    if count > 1:
        axis.legend(frameon=False, fontsize=7)
    return figure


@SEARCH_FIGURES.register
@report_figure(
    name="heat_map",
    title="Heat maps over pairs of settings",
    reading=(
        "Number (n) of the suggestions in each cell, and their mean by colour, over each two of "
        "the four most important settings. The darkest cell has the worst mean, an empty cell has "
        "no value, and the framed one has the method's defaults. Where the best column depends on "
        "the row, the two settings interact."
    ),
    caption=SearchResults.note,
    absent="no two settings have two values each among the finished suggestions",
    takes=("settings", "metric"),
    position=40,
)
def draw_pairs(search: SearchResults) -> Drawing | None:
    if len(search.only_settings) == 1:
        raise UserError("heat_map shows two settings or more, not 1")
    names = search.only_settings or search.shown_settings()[:_PAIRED]
    table, metric = search.figure_table(), METRICS[search.metrics[0]]
    grids, parts = {}, 5 if len(names) > 2 else 6
    for across, down in combinations(range(len(names)), 2):
        levels = search.manifest.question.grid
        grid = heat_map(table, names[down], names[across], parts, levels=levels)
        if len(grid) > 1 and len(grid.get("mean", grid).columns) > 1:
            grids[down - 1, across] = grid
    if not grids:
        return None
    is_single = len(grids) == 1
    side, size = len(names) - 1, (style.TEXT_IN, 0.75 * style.TEXT_IN)
    if is_single:
        side, size = 1, (style.TEXT_IN * 0.75, 3.2)
    figure, axes = style.subplots(side, side, figsize=size, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    means = [metric.scale * grid["mean"].to_numpy(dtype=float).ravel() for grid in grids.values()]
    values = pd.Series(np.concatenate(means))
    norm = (LogNorm if is_wide(values) else Normalize)(values.min(), values.max())
    cmap = "cividis_r" if metric.is_less_better else "cividis"
    for place, grid in grids.items():
        axis = axes[0, 0] if is_single else axes[place]
        axis.set_visible(True)
        _draw_grid(axis, search, grid, is_single, norm=norm, cmap=cmap)
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=list(axes.flat), shrink=1 / side**0.5)
    bar.set_label(f"{metric.head}; darkest: worst")
    if isinstance(norm, LogNorm):
        style.plain_ticks(bar.ax.yaxis)
    return figure


def _draw_grid(
    axis: Axes, search: SearchResults, grid: pd.DataFrame, is_single: bool, **colors: Any
) -> None:
    """Draw a heat map with numbers of suggestions, and with means if there is room."""
    metric = METRICS[search.metrics[0]]
    means: Any = grid["mean"]  # a frame, since the columns have two levels
    notes = grid["count"].map("{:.0f}".format)
    if is_single:
        # From fractions, since ``Metric.format`` converts them to percent.
        notes = means.map(metric.format) + "\nn = " + notes
    sns.heatmap(
        (metric.scale * means).rename(index=_format_tick, columns=_format_tick), ax=axis,
        annot=notes, fmt="", annot_kws={"fontsize": 6 if is_single else 5}, cbar=False,
        linewidths=0.5, **colors,
    )  # fmt: skip
    # Seaborn draws the first row at the top; larger values belong there.
    axis.invert_yaxis()
    if not is_single:
        axis.tick_params(labelsize=5.5, length=2)
        axis.set_xlabel(axis.get_xlabel(), fontsize=7)
        axis.set_ylabel(axis.get_ylabel(), fontsize=7)
    x = _nearest_index(means.columns, search.defaults)
    y = _nearest_index(means.index, search.defaults)
    if x is not None and y is not None:
        look: dict[str, Any] = {"edgecolor": style.CHOSEN, "linewidth": 1.5}
        axis.add_patch(Rectangle((x, y), 1, 1, fill=False, clip_on=False, **look))


def _format_tick(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _nearest_index(values: "pd.Index[Any]", defaults: Mapping[str, Any]) -> int | None:
    """Return the index of the value nearest to the default; None without a default."""
    default = defaults.get(str(values.name))
    if isinstance(values[0], str):
        return list(values).index(str(default)) if str(default) in values else None
    return None if default is None else int(np.argmin(np.abs(values.to_numpy(float) - default)))


@SEARCH_FIGURES.register
@report_figure(
    name="share",
    title="Distance from the best suggestion",
    reading=(
        "Share of all suggestions that are within the guard and at most this far from the best "
        "of them."
    ),
    caption=SearchResults.note,
    absent="fewer than two suggestions are within the guard",
    takes=("metric",),
    position=70,
)
def draw_shares(search: SearchResults) -> Drawing | None:
    table, metric = search.within_guard(), METRICS[search.metrics[0]]
    away = np.sort(distances(table, metric.name).dropna().to_numpy())
    if len(away) < 2:
        return None
    figure, axis = style.subplots(figsize=(style.COLUMN_IN, 2.6))
    # Of all suggestions: one that diverged is not near the best.
    shares = np.arange(1, len(away) + 1) / len(table)
    positions = metric.scale * away
    axis.step(positions, 100 * shares, where="post", color=style.color(0))
    unit = {"fraction": "points", "nats": "nats", "score": "score"}[metric.unit]
    label = f"{metric.title}: distance from the best ({unit})"
    axis.set(xlabel=label, ylabel="suggestions (%)", ylim=(0, 100))
    if metric.unit == "fraction":
        axis.set_xlim(0, min(positions.max(), 200 * MARGINS[-1]) or 1)
    return figure
