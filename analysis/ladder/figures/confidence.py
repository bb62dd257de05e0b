"""Confidence histograms: how often each rung says what confidence, a panel a rung."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.figures._panels import label_outer, panels, shape, title
from analysis.ladder.means import trials_behind
from analysis.ladder.results import LadderResults
from analysis.reliability import describe_bins
from analysis.svg import label_points


def draw_confidence(results: LadderResults) -> Drawing | None:
    """Draw how often each rung has what confidence, right and wrong samples apart.

    Returns:
        None if no trial that is done has bins.
    """
    sweep = results.sweep
    shown = panels(sweep)
    if not shown:
        return None
    columns, rows = shape(len(shown))
    figure, axes = plt.subplots(
        rows, columns, figsize=(style.TEXT_IN, 7.0 / columns * rows + 0.6), sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for index, axis in enumerate(axes.flat):
        if index >= len(shown):
            axis.set_axis_off()
            continue
        title(axis, sweep, shown[index].rung, columns)
        _histogram(axis, shown[index].bins)
        label_outer(axis, index % columns, "samples (%)")
        axis.tick_params(labelbottom=index >= len(shown) - columns)
        axis.set_xlabel("confidence" if index // columns == rows - 1 else "", fontsize=7)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    return figure


def _histogram(axis: Axes, bins: pd.DataFrame) -> None:
    """Draw right samples below wrong ones; mean confidence and accuracy as lines."""
    shown = bins[bins["count"] > 0]
    width = shown["upper"] - shown["lower"]
    right = 100 * shown["share"] * shown["accuracy"]
    wrong = 100 * shown["share"] - right
    shape: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.5}
    below = axis.bar(shown["lower"], right, width, color=style.color(9), **shape)
    above = axis.bar(shown["lower"], wrong, width, bottom=right, color=style.color(3), **shape)
    for bars in (below, above):
        label_points(bars, describe_bins(bins))
    means = (shown[["accuracy", "confidence"]].mul(shown["share"], axis="index")).sum()
    axis.axvline(means["accuracy"], color="0.1", linewidth=1)
    axis.axvline(means["confidence"], color="0.1", linewidth=1, linestyle=":")
    axis.set(xlim=(0, 1), xticks=np.linspace(0, 1, 3))


def _legend() -> list[Line2D | Patch]:
    return [
        Patch(color=style.color(9), label="right samples"),
        Patch(color=style.color(3), label="wrong samples, on top"),
        Line2D([], [], color="0.1", linewidth=1, label="accuracy"),
        Line2D([], [], color="0.1", linewidth=1, linestyle=":", label="mean confidence"),
    ]


LADDER_FIGURES.register(
    Figure(
        name="confidence",
        title="Confidence on test, of right and wrong samples",
        reading=(
            "Share of samples in each bin, the trials of a rung pooled, with accuracy and mean "
            "confidence as lines: where the dotted line is right of the solid one, the rung is "
            "over-confident."
        ),
        draw=draw_confidence,
        caption=lambda results: f"Pooled are {trials_behind(results.sweep, results.binned)}.",
        absent="no trial that is done has bins",
        position=30,
    )
)
