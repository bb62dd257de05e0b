"""ECE against accuracy on test: every trial, and the mean of each rung."""

from itertools import pairwise

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.means import has_spread, mean_over
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from analysis.text import number_cell
from analysis.tidy import seeds_of, unbeaten
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS
from tune_calib.text import format_count

_METRICS = ("accuracy", "ece")
_ARROW = {"arrowstyle": "->", "color": "0.45", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4}
_KEY_IN = 0.15  # height of a line of the legend


def tradeoff_points(sweep: Sweep) -> pd.DataFrame:
    """Return accuracy and ECE on test of every trial that is done."""
    columns = {"test/accuracy": "accuracy", "test/ece": "ece"}
    done = sweep.trials[sweep.trials["status"] == "done"]
    names = ["rung", "network_seed", "head_seed", *columns]
    points = done.reindex(columns=names).rename(columns=columns)
    return points.dropna(subset=list(columns.values())).reset_index(drop=True)


def chains(sweep: Sweep) -> list[list[int]]:
    """Return the rungs that build on each other: a base and its steps; no others."""
    found: list[list[int]] = []
    for index, rung in enumerate(sweep.rungs):
        if index == 0 or rung.kind == "base":
            found.append([rung.index])
        elif rung.kind == "step":
            found[-1].append(rung.index)
    return found


def _is_side_by_side(sweep: Sweep) -> bool:
    """Return whether no rung builds on another."""
    return max(map(len, chains(sweep)), default=0) <= 1


def draw_tradeoff(results: LadderResults) -> Drawing | None:
    """Draw ECE against accuracy on test: each trial faint, mean ± sd of each rung.

    Steps of a ladder are joined by arrows; of methods side by side the Pareto front is marked.
    """
    sweep = results.sweep
    points = tradeoff_points(sweep)
    if points.empty:
        return None
    height = max(3.1, _KEY_IN * len(sweep.rungs) + 0.3)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, height))
    handles = []
    for rung in sweep.rungs:
        rows = points[points["rung"] == rung.index]
        if not rows.empty:
            _rung_point(axis, rows, rung)
        handles.append(_legend_mark(sweep, rung, rows.empty))
    means = 100 * points.groupby("rung")[["accuracy", "ece"]].mean()
    for chain in chains(sweep):
        shown = means.loc[[index for index in chain if index in means.index]]
        for start, end in pairwise(shown[["accuracy", "ece"]].itertuples(index=False)):
            axis.annotate("", xy=end, xytext=start, arrowprops=_ARROW, zorder=1)
    if _is_side_by_side(sweep):
        front = unbeaten(means, ["accuracy", "ece"])[::-1]
        axis.plot(front["accuracy"], front["ece"], "--", color="0.45", linewidth=0.9, zorder=1)
    axis.set(xlabel="test accuracy (%)", ylabel="test ECE (%)")
    axis.set_ylim(bottom=0)  # so that a small gain does not look like all there was
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7)
    return figure


def _rung_point(axis: Axes, rows: pd.DataFrame, rung: RungRecord) -> None:
    x, y = 100 * rows["accuracy"], 100 * rows["ece"]
    spread = (x.std(ddof=1), y.std(ddof=1)) if len(rows) > 1 else (None, None)
    color, shape = style.color(rung.index), style.marker(rung.index)
    if len(rows) > 1:
        small = axis.scatter(x, y, s=9, color=color, alpha=0.5, marker=shape, linewidths=0)
        texts = []
        for row in rows.to_dict("records"):
            values = (f"{METRICS[m].head}: {METRICS[m].format(row[m])}" for m in _METRICS)
            texts.append("\n".join([rung.label, seeds_of(row), *values]))
        label_points(small, texts)
    mean = axis.errorbar(
        x.mean(), y.mean(), xerr=spread[0], yerr=spread[1], color=color, marker=shape,
        markersize=6, markerfacecolor=_face(rung), linestyle="none", elinewidth=0.8,
    )  # fmt: skip
    cells = {m: number_cell(m, rows[m].mean(), rows[m].std(ddof=1)) for m in _METRICS}
    values = (f"{METRICS[m].head}: {cell.text}" for m, cell in cells.items())
    count = f"mean over {format_count(len(rows), 'trial')}" if len(rows) > 1 else "1 trial"
    label_points(mean.lines[0], ["\n".join([rung.label, count, *values])])


def _face(rung: RungRecord) -> str | tuple[float, float, float]:
    """Return filled for a step of the ladder, open for what stands beside it."""
    return style.color(rung.index) if rung.kind in ("base", "step") else "none"


def _legend_mark(sweep: Sweep, rung: RungRecord, is_empty: bool) -> Line2D:
    """Return a mark and a label; a rung without numbers has no mark but says why."""
    index = rung.index
    ended = sweep.failures(index) or "no numbers" if is_empty else sweep.ended(index)
    return Line2D(
        [], [], linestyle="none", marker="" if is_empty else style.marker(index), markersize=6,
        color=style.color(index), markerfacecolor=_face(rung),
        label=f"{rung.label}: {ended}" if is_empty else f"{rung.label} ({ended})",
    )  # fmt: skip


def _caption(results: LadderResults) -> str:
    marks = f"Large marks: {mean_over(results.sweep)}"
    if has_spread(results.sweep):
        marks += "; small ones: single trials"
    if _is_side_by_side(results.sweep):
        return f"{marks}. The base is filled; the dashed line is the Pareto front of the means."
    return f"{marks}. Arrows lead from a rung to the next step; open marks are no such step."


LADDER_FIGURES.register(
    Figure(
        name="tradeoff",
        title="ECE against accuracy on test",
        reading="Low and to the right is better.",
        draw=draw_tradeoff,
        caption=_caption,
        absent="no trial that is done has accuracy and ECE on test",
        position=10,
    )
)
