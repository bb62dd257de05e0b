"""Reliability diagrams: accuracy of each bin against its confidence, a panel a rung."""

from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import Figure
from analysis.ladder.bins import LEVEL, consistency_band
from analysis.ladder.figures._panels import label_outer, panels, shape, title
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from tune_calib.registry import LADDER_FIGURES

_CHANCE = f"{100 * LEVEL:.0f} % of chance"


def draw_reliability(results: LadderResults) -> Drawing | None:
    """Accuracy against confidence of each rung above, share of samples (log) below.

    Returns:
        None if no trial that is done has bins.
    """
    sweep = results.sweep
    shown = panels(sweep)
    if not shown:
        return None
    shares = pd.concat([panel.bins["share"] for panel in shown])
    # Half the smallest share, so that the rarest bin has a bar too.
    floor = float(10 ** np.floor(np.log10(shares[shares > 0].min() / 2)))
    columns, rows = shape(len(shown))
    figure = plt.figure(figsize=(style.TEXT_IN, 10.2 / columns * rows + 0.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1.1] * rows)
    for index, panel in enumerate(shown):
        row, column = divmod(index, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        title(upper, sweep, panel.rung, columns)
        _diagram(upper, panel.bins)
        _histogram(lower, panel.bins, floor)
        for axis, label in ((upper, "accuracy"), (lower, "samples\n(%, log)")):
            label_outer(axis, column, label)
        lower.set_xlabel("confidence" if row == rows - 1 else "", fontsize=7)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    absent = [rung.label for rung in sweep.rungs if rung not in [p.rung for p in shown]]
    figure.suptitle(_reading(absent), fontsize=7)
    return figure


def _reading(absent: list[str]) -> str:
    """How to read the figure, and which rungs it has not."""
    text = (
        "Reliability on test. Bars: bins (lo, hi], trials of a rung pooled by counts; empty bins "
        "not drawn.\nECE (± sd of several), accuracy: means over trials. Shares on a log scale.\n"
        f"Line: {_CHANCE}, the accuracies that a calibrated network would show on as many test "
        "samples."
    )
    return "\n".join(
        [text, *wrap(f"Without bins: {', '.join(absent)}.", 130)] if absent else [text]
    )


def _diagram(axis: Axes, bins: pd.DataFrame) -> None:
    shown = bins[bins["count"] > 0]
    width = shown["upper"] - shown["lower"]
    axis.bar(
        shown["lower"], shown["accuracy"], width, align="edge", color=style.color(9),
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    axis.bar(
        shown["lower"], shown["confidence"] - shown["accuracy"], width, bottom=shown["accuracy"],
        align="edge", color="none", edgecolor=style.color(3), hatch="////", linewidth=0.5,
    )  # fmt: skip
    band = consistency_band(bins)
    middle = (shown["lower"] + shown["upper"]) / 2
    axis.vlines(middle, band["low"], band["high"], color="0.1", linewidth=1)
    axis.plot([0, 1], [0, 1], color="0.1", linewidth=0.8, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.tick_params(labelbottom=False)


def _histogram(axis: Axes, bins: pd.DataFrame, floor: float) -> None:
    shown = bins[bins["count"] > 0]
    # Rare bins make the widest gaps above: on a linear scale nobody would see that they are rare.
    axis.set_yscale("log")
    width = shown["upper"] - shown["lower"]
    axis.bar(
        shown["lower"], 100 * shown["share"], width, align="edge", color="0.45",
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    decades = range(int(np.log10(floor)) + 3, 3, 2)
    axis.set(ylim=(100 * floor, 100), xticks=np.linspace(0, 1, 3))
    ticks = [10.0 ** (decade - 1) for decade in decades]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def _legend() -> list[Line2D | Patch]:
    """Handles of their own, since a panel may lack a kind of bar."""
    return [
        Line2D([], [], color="0.2", linewidth=0.8, linestyle="--", label="calibrated"),
        Patch(color=style.color(9), label="accuracy of the bin"),
        Patch(
            facecolor="none", edgecolor=style.color(3), hatch="////",
            label="gap to its mean confidence",
        ),
        Line2D(
            [], [], color="0.1", linestyle="none", marker="|", markersize=8, label=_CHANCE
        ),
    ]  # fmt: skip


def _caption(results: LadderResults) -> str:
    behind = trials_behind(results.sweep, results.binned)
    return f"Pooled are {behind}; ECE: {mean_over(results.sweep)}."


LADDER_FIGURES.register(
    Figure(
        name="reliability",
        title="Reliability diagrams on test",
        reading=(
            "Accuracy of each bin against its confidence, the trials of a rung pooled; below, the "
            "share of samples in each bin on a log scale. Bars under the diagonal: over-confident. "
            "The lines show how far chance alone takes a calibrated network: test samples drawn "
            "anew with the shares of the bins, each right with the mean confidence of its bin."
        ),
        draw=draw_reliability,
        caption=_caption,
        absent="no trial that is done has bins",
        position=20,
    )
)
