"""Reliability diagrams: accuracy of each bin against its confidence, a panel a rung."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.figures._panels import label_outer, panels, shape, title
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.reliability import diagram, histogram, legend, lowest


def draw_reliability(results: LadderResults) -> Drawing | None:
    """Draw accuracy against confidence of each rung above, share of samples (log) below.

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
    return figure


def _caption(results: LadderResults) -> str:
    sweep = results.sweep
    shown = [panel.rung for panel in panels(sweep)]
    absent = ", ".join(rung.label for rung in sweep.rungs if rung not in shown)
    pooled = f"Pooled are {trials_behind(sweep, results.binned)}; ECE: {mean_over(sweep)}."
    return f"{pooled} Without bins: {absent}." if absent else pooled


LADDER_FIGURES.register(
    Figure(
        name="reliability",
        title="Reliability diagrams on test",
        reading=(
            "Accuracy of each bin (lo, hi] that is not empty against its confidence, the trials of "
            "a rung pooled; below, the share of samples in each bin on a log scale. Bars under the "
            "diagonal: over-confident. The lines show how far chance alone takes a calibrated "
            "network: test samples drawn anew with the shares of the bins, each right with the "
            "mean confidence of its bin."
        ),
        draw=draw_reliability,
        caption=_caption,
        absent="no trial that is done has bins",
        position=20,
    )
)
