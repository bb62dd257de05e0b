"""Figures of a ladder: the sparsity trajectory, and ECE against accuracy."""

import math

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.ladder import varied
from analysis.load import Sweep


def trajectory(sweep: Sweep, rung: int, name: str) -> pd.DataFrame:
    """Mean, least and largest value of a recorded quantity over the trials of a rung, by epoch."""
    return sweep.curves_of(rung, name).groupby("epoch")["value"].agg(["mean", "min", "max"])


def adaptive_rungs(sweep: Sweep) -> list[dict[str, object]]:
    """Rungs whose keep probability moves."""
    moving = []
    for rung in sweep.rungs:
        q = sweep.curves_of(rung["index"], "q")
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
    figure, axes = plt.subplots(1, 3, figsize=(style.TEXT_IN, 2.4))
    titles = {
        "q": "keep probability q",
        "tau": "largest step τ of q",
        "train/accuracy": "train: accuracy (solid),\nconfidence (dashed)",
    }
    for axis, (name, text) in zip(axes, titles.items(), strict=True):
        for rung in rungs:
            index = int(str(rung["index"]))
            _line(axis, trajectory(sweep, index, name), index, str(rung["label"]), "-")
            if name == "train/accuracy":
                curve = trajectory(sweep, index, "train/confidence")
                _line(axis, curve, index, None, "--")
        axis.set(xlabel="epoch of stage II")
        axis.set_title(text, fontsize=8)
    axes[0].set_ylabel("fraction")
    figure.suptitle("mean over the trials of a rung; band: smallest to largest", fontsize=7)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(rungs), frameon=False)
    return figure


def _line(axis: Axes, curve: pd.DataFrame, index: int, label: str | None, style_: str) -> None:
    color = style.color(index)
    axis.plot(curve.index, curve["mean"], style_, color=color, label=label, linewidth=1.2)
    axis.fill_between(curve.index, curve["min"], curve["max"], color=color, alpha=0.2, linewidth=0)


def draw_tradeoff(sweep: Sweep) -> Figure:
    """ECE against accuracy on test: each trial faint, mean ± sd of each rung, ladder as a line."""
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.75, 2.9))
    path: list[tuple[float, float]] = []
    for rung in sweep.rungs:
        rows = sweep.of_rung(rung["index"])
        if rows.empty:
            continue
        index, label = rung["index"], f"{rung['label']} (n = {len(rows)})"
        x, y = 100 * rows["test/accuracy"], 100 * rows["test/ece"]
        spread = (x.std(ddof=1), y.std(ddof=1)) if len(rows) > 1 else (None, None)
        color, shape = style.color(index), style.marker(index)
        axis.scatter(x, y, s=8, color=color, alpha=0.4, marker=shape, linewidths=0)
        face = color if rung["kind"] in ("base", "step") else "white"
        axis.errorbar(
            x.mean(), y.mean(), xerr=spread[0], yerr=spread[1], color=color, marker=shape,
            markersize=6, markerfacecolor=face, linestyle="none", elinewidth=0.8, label=label,
        )  # fmt: skip
        if rung["kind"] == "base" and path:
            path.append((math.nan, math.nan))  # breaks the line between two chains
        if rung["kind"] in ("base", "step"):
            path.append((x.mean(), y.mean()))
    axis.plot(*zip(*path, strict=True), color="0.6", linewidth=0.8, zorder=0) if path else None
    axis.set(xlabel="test accuracy (%)", ylabel="test ECE (%)")
    axis.set_ylim(bottom=0)
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    figure.suptitle(f"mean ± sd; {varied(sweep)}", fontsize=7, x=0.02, ha="left")
    return figure
