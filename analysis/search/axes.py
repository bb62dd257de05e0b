"""Draw the frames of ``sensitivity`` on axes; in notebooks, call ``style.theme()`` before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from analysis import style
from analysis.search.sensitivity import MARGINS, distances, is_log, is_numeric, trend
from analysis.svg import label_points
from tune_calib.spec.metrics import METRICS

CHOSEN = style.color(3)
_WIDE_FROM = 5  # largest over smallest value of a metric


def draw_against(
    axis: Axes,
    table: pd.DataFrame,
    setting: str,
    metric: str = "ece",
    default: float | str | None = None,
    index: int = 0,
) -> None:
    """Draw a metric of ``sensitivity.against`` over one setting, with the default as a line."""
    scale = METRICS[metric].scale
    values, has_numbers = list(table["value"]), is_numeric(table["value"])
    positions = values if has_numbers else list(range(len(values)))
    color = style.color(index)
    axis.plot(
        positions, scale * table["mean"], color=color, marker=style.marker(index), markersize=4,
        linewidth=1.2,
    )  # fmt: skip
    axis.fill_between(
        positions, scale * table["low"], scale * table["high"], color=color, alpha=0.2, linewidth=0
    )
    if not has_numbers:
        axis.set_xticks(positions, [str(value) for value in values])
    elif is_log(values):
        axis.set_xscale("log")
    if default is not None and (has_numbers or default in values):
        position = float(default) if has_numbers else values.index(default)
        axis.axvline(position, color="0.3", linestyle="--", linewidth=0.8)
        axis.annotate(
            "default", (position, 1), xycoords=("data", "axes fraction"), xytext=(2, -8),
            textcoords="offset points", fontsize=6.5, color="0.3",
        )  # fmt: skip
    if table["low"].isna().all():
        band = "no band: one trial each"
    elif (table["fillings"] == 1).all():
        band = "band: mean ± sd over seeds"
    else:
        band = "band: smallest to largest of the other settings"
    bad = f", {table['bad'].sum()} without a number" if table["bad"].any() else ""
    axis.set(xlabel=setting, ylabel=METRICS[metric].head)
    axis.set_title(f"{band}; n = {table['n'].sum()}{bad}", fontsize=6.5)


def draw_heat_map(
    axis: Axes,
    table: pd.DataFrame,
    metric: str = "ece",
    default: Mapping[str, Any] | None = None,
    counts: pd.DataFrame | None = None,
) -> None:
    """Draw the frame of ``heat_map``, the metric as number and as shade, the worst darkest.

    ``counts`` are fillings behind each cell; the cell nearest to ``default`` gets a frame.
    """
    is_less_better = METRICS[metric].is_less_better
    scale = METRICS[metric].scale
    values = pd.Series(scale * table.to_numpy(dtype=float).ravel())
    norm = LogNorm(float(values.min()), float(values.max())) if is_wide(values) else None
    # From the plain values, since ``Metric.format`` turns them into percent itself.
    notes = table.map(METRICS[metric].format)
    if counts is not None:
        notes += counts.map(lambda count: f"\nn = {count:.0f}")
    sns.heatmap(
        scale * table, ax=axis, norm=norm, cmap="cividis_r" if is_less_better else "cividis",
        annot=notes, fmt="", annot_kws={"fontsize": 6},
        cbar_kws={"label": f"{METRICS[metric].head}; darkest: worst"}, linewidths=0.5,
    )  # fmt: skip
    bar = axis.collections[0].colorbar
    if norm is not None and bar is not None:
        style.plain_ticks(bar.ax.yaxis)
    # Seaborn puts the first row on top, where other figures have their largest value.
    axis.invert_yaxis()
    across, down = (_nearest_index(names, default or {}) for names in (table.columns, table.index))
    if across is not None and down is not None:
        frame = Rectangle((across, down), 1, 1, fill=False, clip_on=False)
        frame.set(edgecolor=style.color(3), linewidth=1.5)
        axis.add_patch(frame)


def _nearest_index(values: "pd.Index[Any]", default: Mapping[str, Any]) -> int | None:
    """Return the index of the value nearest to the default; None if that lacks the setting."""
    wanted = default.get(str(values.name))
    if isinstance(values[0], str):
        return list(values).index(str(wanted)) if str(wanted) in values else None
    return None if wanted is None else int(np.argmin([abs(value - wanted) for value in values]))


def draw_share(
    axis: Axes, table: pd.DataFrame, metric: str = "ece", label: str = "", index: int = 0
) -> None:
    """Draw the share of fillings within a distance of the best, for every distance."""
    away = np.sort(distances(table, metric).dropna().to_numpy())
    # Of all fillings: one that diverged is not near the best.
    shares = np.arange(1, len(away) + 1) / len(table)
    positions = METRICS[metric].scale * away
    axis.step(positions, 100 * shares, where="post", color=style.color(index), label=label)
    unit = {"fraction": "points", "nats": "nats", "score": "score"}[METRICS[metric].unit]
    label = f"{METRICS[metric].title}: distance from the best ({unit})"
    axis.set(xlabel=label, ylabel="fillings (%)", ylim=(0, 100))
    if METRICS[metric].unit == "fraction":
        axis.set_xlim(0, min(positions.max(), 200 * MARGINS[-1]) or 1)
    axis.set_title(f"n = {len(table)} fillings", fontsize=6.5)


def draw_tried(
    axis: Axes,
    table: pd.DataFrame,
    setting: str,
    metric: str = "ece",
    default: float | str | None = None,
    has_log: bool = False,
    chosen: int | None = None,
    published: Sequence[float | str] = (),
    describe: Callable[[pd.DataFrame], list[str]] | None = None,
) -> None:
    """Draw every filling of ``SearchResults.table`` against one setting, and the trend along it."""
    scale = METRICS[metric].scale
    rows = table.dropna(subset=[setting, "mean"])
    along = trend(table, setting)
    positions, names = _positions(rows[setting])
    marks = axis.errorbar(
        positions, scale * rows["mean"], yerr=scale * rows["sd"].fillna(0), linestyle="none",
        marker="o", markersize=2.5, color="0.55", elinewidth=0.5, alpha=0.7, linewidth=0, zorder=1,
    )  # fmt: skip
    if describe is not None:
        label_points(marks.lines[0], describe(rows))
    line = along["value"].map(names.index) if names else along["value"]
    low, high = scale * along["low"], scale * along["high"]
    color = style.color(0)
    axis.plot(line, scale * along["median"], color=color, marker="s", markersize=3.5, linewidth=1.2)
    axis.fill_between(line, low, high, color=color, alpha=0.25, linewidth=0)
    is_chosen = rows["number"] == chosen
    axis.plot(
        positions[is_chosen], scale * rows.loc[is_chosen, "mean"], linestyle="none", marker="*",
        markersize=9, color=CHOSEN, zorder=3,
    )  # fmt: skip
    if names:
        axis.set_xticks(range(len(names)), names)
        axis.set_xlim(-0.5, len(names) - 0.5)
    elif has_log:
        axis.set_xscale("log")
    for value, dashes in [*((value, ":") for value in published), (default, "--")]:
        if value is not None and (not names or str(value) in names):
            position = names.index(str(value)) if names else float(value)
            axis.axvline(position, color=style.color(3), linestyle=dashes, linewidth=1, zorder=0)
    if is_wide(rows["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    axis.set(xlabel=setting, ylabel=f"select {METRICS[metric].head}")


def _positions(values: "pd.Series[Any]") -> tuple[Any, list[str]]:
    """Return positions on an axis, and the names of its ticks (none where it has numbers)."""
    if is_numeric(values):
        return values.astype(float), []
    names = sorted(set(values.map(str)))
    # Those of one name side by side, so that they do not hide each other.
    own = values.map(str)
    order, sizes = own.groupby(own).cumcount(), own.groupby(own).transform("size")
    return own.map(names.index) + 0.5 * ((order + 0.5) / sizes - 0.5), names


def is_wide(values: "pd.Series[float]") -> bool:
    """Return whether values of a metric are so far apart that they need a logarithmic axis."""
    known = values.dropna()
    return bool(len(known) and known.min() > 0 and known.max() / known.min() >= _WIDE_FROM)
