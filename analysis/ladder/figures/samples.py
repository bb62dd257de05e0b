"""Gates of single samples, their flips, and what the indicator knows, over the epochs."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder import samples
from analysis.ladder.means import trials_behind
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points

_MARKS_A_LINE = 20
MAX_BANDS = 6  # the bands of more rungs could not be told apart
DRAWN = ("over", "flipped", "pearson", "spearman")


def draw_samples(results: LadderResults) -> Drawing | None:
    """Draw proportions, flips and correlations over the epochs, a row of panels a split.

    Returns:
        None if no trial has records of single samples.
    """
    sweep, statistics = results.sweep, results.statistics
    if statistics.empty:
        return None
    figure, axes = plt.subplots(2, 4, figsize=(style.TEXT_IN, 4.4), sharex=True, sharey="col")
    for panels, (split, title) in zip(axes, samples.SPLITS.items(), strict=True):
        of_split = statistics[statistics["split"] == split]
        for axis, quantity in zip(panels, DRAWN, strict=True):
            _lines(axis, sweep, of_split, quantity)
        panels[0].set_ylabel(title)
    for axis, quantity in zip(axes[0], DRAWN, strict=True):
        axis.set_title(samples.QUANTITIES[quantity], fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("epoch")
        style.whole_ticks(axis.xaxis)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _lines(axis: Axes, sweep: Sweep, statistics: pd.DataFrame, quantity: str) -> None:
    scale = 100 if quantity in samples.SHARES else 1
    for rung in sweep.rungs:
        hashes = set(sweep.of_rung(rung.index)["spec_hash"])
        chosen = statistics[statistics["spec_hash"].isin(hashes)].dropna(subset=[quantity])
        if chosen.empty:
            continue
        curve = scale * chosen.groupby("epoch")[quantity].agg(["mean", "min", "max"])
        color, marker = style.color(rung.index), style.marker(rung.index)
        step = max(1, len(curve) // _MARKS_A_LINE)
        (line,) = axis.plot(
            curve.index, curve["mean"], color=color, marker=marker, markersize=3,
            markevery=(0, step), linewidth=1, label=f"{rung.label} ({sweep.ended(rung.index)})",
        )  # fmt: skip
        what = samples.QUANTITIES[quantity].replace("\n", " ")
        marked = curve["mean"].iloc[::step].items()
        label_points(line, [f"{rung.label}\nepoch {epoch}\n{what}: {v:.4g}" for epoch, v in marked])
        if len(sweep.rungs) <= MAX_BANDS:
            axis.fill_between(
                curve.index, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0
            )


def _caption(results: LadderResults) -> str:
    behind = trials_behind(results.sweep, results.statistics["spec_hash"])
    return f"Mean, and (of few rungs) a band from the smallest to the largest; {behind}."


LADDER_FIGURES.register(
    Figure(
        name="samples",
        title="Gates of single samples over the epochs",
        reading=(
            "Shares, flips, and the correlation of the indicator with correctness; what is not +1 "
            "is under-confident."
        ),
        draw=draw_samples,
        caption=_caption,
        position=50,
    )
)
