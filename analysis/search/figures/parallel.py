"""Figure of parallel coordinates: every suggestion of a search as a line over its settings."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, report_figure
from analysis.search.load import SearchResults
from analysis.search.sensitivity import is_numeric, is_wide
from tune_calib.spec.metrics import METRICS

_ABSENT = -0.12  # below the axes, for settings that do not apply


def coordinates(search: SearchResults, table: pd.DataFrame) -> pd.DataFrame:
    """Return heights in [0, 1] on the axis of each setting that varies; NaN if not used."""
    found = {}
    for name in search.only_settings or search.settings:
        values = table[name].dropna()
        if values.nunique() > 1:
            numbers = _numbers(values, search.outcome.settings[name].get("log", False))
            heights = (numbers - numbers.min()) / (numbers.max() - numbers.min())
            found[name] = heights.reindex(table.index)
    return pd.DataFrame(found, index=table.index)


def _numbers(values: "pd.Series[Any]", has_log: bool) -> "pd.Series[float]":
    if not is_numeric(values):
        return values.map(str).astype("category").cat.codes.astype(float)
    plain = values.astype(float)
    return pd.Series(np.log10(plain), index=values.index) if has_log else plain


@SEARCH_FIGURES.register
@report_figure(
    name="parallel",
    title="Parallel coordinates",
    reading=(
        "One line per suggestion; lighter is better, and the thick line is the chosen one. The "
        "most important setting is on the left."
    ),
    caption=SearchResults.long_note,
    absent="no two settings have two values each among the finished suggestions",
    takes=("settings", "metric"),
    position=50,
)
def draw_parallel(search: SearchResults) -> Drawing | None:
    """Draw every finished suggestion as a line over the settings, coloured by the metric."""
    metric = search.metrics[0]
    rows = search.figure_table().dropna(subset="mean")
    is_less_better = METRICS[metric].is_less_better
    # The best are drawn last, on top.
    rows = rows.sort_values("mean", ascending=not is_less_better, kind="stable")
    heights = coordinates(search, rows)
    if len(heights.columns) < 2:
        return None
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 3.1))
    values = METRICS[metric].scale * rows["mean"]
    norm = (LogNorm if is_wide(values) else Normalize)(values.min(), values.max())
    cmap = "cividis_r" if is_less_better else "cividis"
    lines = [list(enumerate(row)) for row in heights.fillna(_ABSENT).to_numpy()]
    shown = LineCollection(lines, cmap=cmap, norm=norm, linewidths=0.9, alpha=0.85)
    shown.set_array(values.to_numpy())
    axis.add_collection(shown)
    is_chosen = rows["number"] == search.chosen
    chosen = [line for line, is_marked in zip(lines, is_chosen, strict=True) if is_marked]
    axis.add_collection(LineCollection(chosen, colors=[style.CHOSEN], linewidths=2.2))
    _axes(axis, search, rows, heights)
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=axis, pad=0.02)
    bar.set_label(f"select {METRICS[metric].head}; darkest: worst")
    if isinstance(norm, LogNorm):
        style.plain_ticks(bar.ax.yaxis)
    return figure


def _axes(axis: Axes, search: SearchResults, rows: pd.DataFrame, heights: pd.DataFrame) -> None:
    """Draw a vertical line for each setting, with its values next to it."""
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
    """Return heights and texts of ticks: every value, or both ends and the middle of a range."""
    if not is_numeric(values) or values.nunique() <= 3:
        pairs = {(float(height), f"{value:g}" if not isinstance(value, str) else value)
                 for height, value in zip(heights, values, strict=True)}  # fmt: skip
        return sorted(pairs)
    low, high = float(values.min()), float(values.max())
    middle = (low * high) ** 0.5 if has_log else (low + high) / 2
    return [(height, f"{value:.2g}") for height, value in ((0, low), (0.5, middle), (1, high))]
