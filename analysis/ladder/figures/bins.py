"""Figures of bins: reliability diagrams and confidence histograms, a panel per rung."""

from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.reliability import describe_bins, diagram, histogram, legend, lowest
from analysis.svg import label_points
from analysis.text import number_cell
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS

FEW = 12  # up to so many panels, four in a row; else six, so that they fit a page


class Panel(NamedTuple):
    """A rung that has bins, and its pooled bins."""

    rung: RungRecord
    bins: pd.DataFrame


def _panels(sweep: Sweep) -> list[Panel]:
    """Return the rungs that have bins."""
    found = [Panel(rung, pooled_bins(sweep, rung.index)) for rung in sweep.rungs]
    return [panel for panel in found if (panel.bins["count"] > 0).any()]


def _shape(count: int) -> tuple[int, int]:
    """Return the numbers of columns and rows for some panels."""
    columns = 4 if count <= FEW else 6
    return columns, -(-count // columns)


def _label_outer(axis: Axes, column: int, label: str) -> None:
    """Label the panels of the first column alone, since all share their axes."""
    axis.set_ylabel(label if column == 0 else "", fontsize=7)
    axis.tick_params(labelsize=6.5, labelleft=column == 0)


def _write_title(axis: Axes, sweep: Sweep, rung: RungRecord, columns: int) -> None:
    """Write the name of a rung and its numbers over its panel."""
    name = "\n".join(wrap(rung.label, 116 // columns))
    axis.set_title(f"{name}\n{_numbers(sweep, rung.index)}", fontsize=6.5 if columns < 6 else 6)


def _numbers(sweep: Sweep, rung: int) -> str:
    rows = sweep.of_rung(rung)
    if not {"test/ece", "test/accuracy"} <= set(rows) or rows["test/ece"].isna().all():
        return f"{sweep.failures(rung) or 'no ECE recorded'}\n"
    values = rows["test/ece"].dropna()
    ece = number_cell("ece", values.mean(), values.std(ddof=1)).text
    accuracy = METRICS["accuracy"].format(rows["test/accuracy"].mean())
    # Statuses are longer than a panel is wide, so they have a line of their own.
    ended = sweep.ended(rung)
    separator = ", " if sweep.is_done(rung) else "\n"
    return f"ECE {ece} %\naccuracy {accuracy} %{separator}{ended}"


def pooled_bins(sweep: Sweep, rung: int, split: str = "test") -> pd.DataFrame:
    """Pool the bins of a rung's trials by their counts; an empty bin has no accuracy (NaN)."""
    hashes = set(sweep.of_rung(rung)["spec_hash"])
    chosen = sweep.bins["spec_hash"].isin(hashes) & (sweep.bins["split"] == split)
    bins = sweep.bins[chosen]
    # In a plain mean over the trials, a bin of one sample would weigh as much as one of hundreds.
    weighted = bins.assign(
        confidence=bins["confidence"] * bins["count"], accuracy=bins["accuracy"] * bins["count"]
    )
    pooled = weighted.groupby("bin")[["count", "confidence", "accuracy"]].sum()
    edges = bins.groupby("bin")[["lower", "upper"]].first()
    total = pooled["count"].where(pooled["count"] > 0)
    return edges.assign(
        count=pooled["count"],
        confidence=pooled["confidence"] / total,
        accuracy=pooled["accuracy"] / total,
        share=pooled["count"] / max(1, pooled["count"].sum()),
        trials=bins["spec_hash"].nunique(),
    )


def draw_reliability(results: LadderResults) -> Drawing | None:
    """Draw accuracy against confidence of each rung above, share of samples (log) below."""
    sweep = results.sweep
    shown = _panels(sweep)
    if not shown:
        return None
    shares = pd.concat([panel.bins["share"] for panel in shown])
    floor = lowest(shares)
    columns, rows = _shape(len(shown))
    figure = plt.figure(figsize=(style.TEXT_IN, 10.2 / columns * rows + 0.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1.1] * rows)
    for index, panel in enumerate(shown):
        row, column = divmod(index, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _write_title(upper, sweep, panel.rung, columns)
        diagram(upper, panel.bins)
        histogram(lower, panel.bins, floor)
        for axis, label in ((upper, "accuracy"), (lower, "samples\n(%, log)")):
            _label_outer(axis, column, label)
        lower.set_xlabel("confidence" if row == rows - 1 else "", fontsize=7)
    figure.legend(handles=legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    return figure


def _caption(results: LadderResults) -> str:
    sweep = results.sweep
    shown = [panel.rung for panel in _panels(sweep)]
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


def draw_confidence(results: LadderResults) -> Drawing | None:
    """Draw the confidence histogram of each rung, right and wrong samples apart."""
    sweep = results.sweep
    shown = _panels(sweep)
    if not shown:
        return None
    columns, rows = _shape(len(shown))
    figure, axes = plt.subplots(
        rows, columns, figsize=(style.TEXT_IN, 7.0 / columns * rows + 0.6), sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for index, axis in enumerate(axes.flat):
        if index >= len(shown):
            axis.set_axis_off()
            continue
        _write_title(axis, sweep, shown[index].rung, columns)
        _histogram(axis, shown[index].bins)
        _label_outer(axis, index % columns, "samples (%)")
        axis.tick_params(labelbottom=index >= len(shown) - columns)
        axis.set_xlabel("confidence" if index // columns == rows - 1 else "", fontsize=7)
    handles = [
        Patch(color=style.color(9), label="right samples"),
        Patch(color=style.color(3), label="wrong samples, on top"),
        Line2D([], [], color="0.1", linewidth=1, label="accuracy"),
        Line2D([], [], color="0.1", linewidth=1, linestyle=":", label="mean confidence"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=7)
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
