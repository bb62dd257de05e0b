"""Reliability diagrams: accuracy of each bin against its confidence, a panel a rung."""

from textwrap import wrap

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.figures._panels import label_outer, panels, shape, title
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.reliability import CHANCE, diagram, histogram, legend, lowest


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
    floor = lowest(shares)
    columns, rows = shape(len(shown))
    figure = plt.figure(figsize=(style.TEXT_IN, 10.2 / columns * rows + 0.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1.1] * rows)
    for index, panel in enumerate(shown):
        row, column = divmod(index, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        title(upper, sweep, panel.rung, columns)
        diagram(upper, panel.bins)
        histogram(lower, panel.bins, floor)
        for axis, label in ((upper, "accuracy"), (lower, "samples\n(%, log)")):
            label_outer(axis, column, label)
        lower.set_xlabel("confidence" if row == rows - 1 else "", fontsize=7)
    figure.legend(handles=legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    absent = [rung.label for rung in sweep.rungs if rung not in [p.rung for p in shown]]
    figure.suptitle(_reading(absent), fontsize=7)
    return figure


def _reading(absent: list[str]) -> str:
    """How to read the figure, and which rungs it has not."""
    text = (
        "Reliability on test. Bars: bins (lo, hi], trials of a rung pooled by counts; empty bins "
        "not drawn.\nECE (± sd of several), accuracy: means over trials. Shares on a log scale.\n"
        f"Line: {CHANCE}, the accuracies that a calibrated network would show on as many test "
        "samples."
    )
    return "\n".join(
        [text, *wrap(f"Without bins: {', '.join(absent)}.", 130)] if absent else [text]
    )


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
        tables=("bins",),
    )
)
