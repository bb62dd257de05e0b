"""Figures of a ladder: the sparsity trajectory, and ECE against accuracy."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import style
from analysis.ladder.ladder import summary
from analysis.load import Sweep
from analysis.pareto import unbeaten
from tune_calib.manifests import RungRecord

_MARKS_A_LINE = 6
_KEY_IN = 0.15  # height of a line of the legend


def trajectory(sweep: Sweep, rung: int, name: str) -> pd.DataFrame:
    """Mean, least and largest value of a recorded quantity over the trials of a rung, by epoch."""
    return sweep.curves_of(rung, name).groupby("epoch")["value"].agg(["mean", "min", "max"])


def adaptive_rungs(sweep: Sweep) -> list[RungRecord]:
    """Rungs whose keep probability moves."""
    moving = []
    for rung in sweep.rungs:
        q = sweep.curves_of(rung.index, "q")
        if len(q) and q["value"].max() - q["value"].min() > 1e-6:
            moving.append(rung)
    return moving


def draw_sparsity(sweep: Sweep) -> Figure | None:
    """Keep probability, its largest step, and what drives it, over the epochs of stage II.

    Returns:
        None if no rung has a keep probability that moves.
    """
    rungs = adaptive_rungs(sweep)
    if not rungs:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(style.TEXT_IN, 2.5))
    panels = {
        "q": "share of weights kept q",
        "tau": "largest step τ of q",
        "train/accuracy": "on the training split",
    }
    for axis, (name, text) in zip(axes, panels.items(), strict=True):
        for place, rung in enumerate(rungs):
            _line(axis, trajectory(sweep, rung.index, name), rung.index, place, "-")
            if name == "train/accuracy":
                curve = trajectory(sweep, rung.index, "train/confidence")
                _line(axis, curve, rung.index, place, "--")
        axis.set_xlabel("epoch of stage II")
        axis.set_ylabel(text, fontsize=7.5)
    sparsity = axes[0].secondary_yaxis("right", functions=(_complement, _complement))
    sparsity.set_ylabel("sparsity 1 - q", fontsize=7.5)
    lines = [
        Line2D([], [], color="0.2", linestyle="-", label="accuracy"),
        Line2D([], [], color="0.2", linestyle="--", label="confidence"),
    ]
    axes[2].legend(handles=lines, frameon=False, fontsize=7, loc="lower right")
    figure.suptitle("mean over the trials of a rung; band: smallest to largest", fontsize=7)
    figure.legend(
        handles=[_key(sweep, rung) for rung in rungs], loc="outside lower center",
        ncols=min(2, len(rungs)), frameon=False, fontsize=7.5,
    )  # fmt: skip
    return figure


def _complement(share: Any) -> Any:
    return 1 - share


def _line(axis: Axes, curve: pd.DataFrame, index: int, place: int, dashes: str) -> None:
    color = style.color(index)
    step = max(1, len(curve) // _MARKS_A_LINE)
    # Marks of different rungs are shifted, so that lines that coincide are still told apart.
    axis.plot(
        curve.index, curve["mean"], dashes, color=color, linewidth=1.2,
        marker=style.marker(index), markersize=3.5, markevery=(place * step // 2 % step, step),
    )  # fmt: skip
    axis.fill_between(curve.index, curve["min"], curve["max"], color=color, alpha=0.2, linewidth=0)


def _key(sweep: Sweep, rung: RungRecord) -> Line2D:
    index = rung.index
    label = f"{rung.label} ({sweep.ended(index)})"
    return Line2D(
        [], [], color=style.color(index), marker=style.marker(index), markersize=3.5, label=label
    )


def tradeoff_points(sweep: Sweep) -> pd.DataFrame:
    """Accuracy and ECE on test of every trial that is done.

    Returns:
        Columns rung, accuracy, ece; fractions. Empty if nothing is done.
    """
    columns = {"test/accuracy": "accuracy", "test/ece": "ece"}
    done = sweep.trials[sweep.trials["status"] == "done"]
    points = done.reindex(columns=["rung", *columns]).rename(columns=columns)
    return points.dropna(subset=list(columns.values())).reset_index(drop=True)


def chains(sweep: Sweep) -> list[list[int]]:
    """Rungs that build on each other: a base and its steps; the others are in no chain."""
    found: list[list[int]] = []
    for place, rung in enumerate(sweep.rungs):
        if place == 0 or rung.kind == "base":
            found.append([rung.index])
        elif rung.kind == "step":
            found[-1].append(rung.index)
    return found


def _is_side_by_side(sweep: Sweep) -> bool:
    """Whether no rung builds on another."""
    return max(map(len, chains(sweep)), default=0) <= 1


def draw_tradeoff(sweep: Sweep) -> Figure | None:
    """ECE against accuracy on test: each trial faint, mean ± sd of each rung.

    Steps of a ladder are joined by arrows; of methods side by side the Pareto front is marked.

    Returns:
        None if no trial is done.
    """
    points = tradeoff_points(sweep)
    if points.empty:
        return None
    height = max(3.1, _KEY_IN * len(sweep.rungs) + 0.3)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.85, height))
    handles = []
    for rung in sweep.rungs:
        rows = points[points["rung"] == rung.index]
        if not rows.empty:
            _rung_point(axis, rows, rung)
        handles.append(_legend_mark(sweep, rung, rows.empty))
    means = 100 * points.groupby("rung")[["accuracy", "ece"]].mean()
    for chain in chains(sweep):
        _arrows(axis, means.loc[[index for index in chain if index in means.index]])
    if _is_side_by_side(sweep):
        _mark_front(axis, unbeaten(means, ["accuracy", "ece"])[::-1])
    axis.set(xlabel="test accuracy (%)", ylabel="test ECE (%)")
    axis.set_ylim(bottom=0)
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7)
    figure.suptitle(_reading(sweep), fontsize=7, x=0.02, ha="left")
    return figure


def _reading(sweep: Sweep) -> str:
    """How to read the trade-off; what it does not have is not explained."""
    text = summary(sweep)
    if text.startswith("mean"):
        text = f"large: {text}; small: single trials"
    if not _is_side_by_side(sweep):
        return f"{text}\narrows: from a rung to the next step; open marks: not a step of the ladder"
    return f"{text}\nfilled mark: the base; dashed: Pareto front of the means"


def _mark_front(axis: Axes, front: pd.DataFrame) -> None:
    axis.plot(front["accuracy"], front["ece"], "--", color="0.45", linewidth=0.9, zorder=1)


def _rung_point(axis: Axes, rows: pd.DataFrame, rung: RungRecord) -> None:
    x, y = 100 * rows["accuracy"], 100 * rows["ece"]
    spread = (x.std(ddof=1), y.std(ddof=1)) if len(rows) > 1 else (None, None)
    color, shape = style.color(rung.index), style.marker(rung.index)
    if len(rows) > 1:
        axis.scatter(x, y, s=9, color=color, alpha=0.5, marker=shape, linewidths=0)
    axis.errorbar(
        x.mean(), y.mean(), xerr=spread[0], yerr=spread[1], color=color, marker=shape,
        markersize=6, markerfacecolor=_face(rung), linestyle="none", elinewidth=0.8,
    )  # fmt: skip


def _face(rung: RungRecord) -> str | tuple[float, float, float]:
    """Filled for a step of the ladder, open for what stands beside it."""
    return style.color(rung.index) if rung.kind in ("base", "step") else "none"


def _legend_mark(sweep: Sweep, rung: RungRecord, is_empty: bool) -> Line2D:
    """A mark and a label in ladder order; a rung without numbers has no mark but says why."""
    index = rung.index
    ended = sweep.failures(index) or "no numbers" if is_empty else sweep.ended(index)
    return Line2D(
        [], [], linestyle="none", marker="" if is_empty else style.marker(index), markersize=6,
        color=style.color(index), markerfacecolor=_face(rung),
        label=f"{rung.label}: {ended}" if is_empty else f"{rung.label} ({ended})",
    )  # fmt: skip


def _arrows(axis: Axes, means: pd.DataFrame) -> None:
    places = zip(means["accuracy"], means["ece"], strict=True)
    for start, end in pairwise(places):
        arrow = {"arrowstyle": "->", "color": "0.45", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4}
        axis.annotate("", xy=end, xytext=start, arrowprops=arrow, zorder=1)
