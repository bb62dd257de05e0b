"""Reliability diagrams with their confidence histograms."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.load import Sweep

COLUMNS = 4


def pooled_bins(sweep: Sweep, rung: int, split: str = "test") -> pd.DataFrame:
    """Bins of a rung, its trials pooled by their counts.

    Returns:
        Columns lower, upper, count, confidence, accuracy (NaN in an empty bin), share.
    """
    hashes = set(sweep.of_rung(rung)["spec_hash"])
    chosen = sweep.bins["spec_hash"].isin(hashes) & (sweep.bins["split"] == split)
    bins = sweep.bins[chosen]
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
    )


def draw(sweep: Sweep) -> Figure:
    """One panel a rung: accuracy against confidence above, share of samples below."""
    rungs = sweep.rungs
    rows = -(-len(rungs) // COLUMNS)
    figure = plt.figure(figsize=(style.TEXT_IN, 2.7 * rows + 0.4))
    grid = figure.add_gridspec(2 * rows, COLUMNS, height_ratios=[3, 1] * rows)
    tables = [pooled_bins(sweep, rung["index"]) for rung in rungs]
    tallest = max((table["share"].max() for table in tables if len(table)), default=1.0)
    for place, (rung, bins) in enumerate(zip(rungs, tables, strict=True)):
        row, column = divmod(place, COLUMNS)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        upper.set_title(f"{rung['label']}\n{_numbers(sweep, rung['index'])}", fontsize=6.5)
        _diagram(upper, bins)
        width = bins["upper"] - bins["lower"]
        lower.bar(bins["lower"], bins["share"], width, align="edge", color="0.45")
        lower.set(ylim=(0, 1.05 * tallest), xticks=np.linspace(0, 1, 3))
        if column == 0:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("share")
        if place >= len(rungs) - COLUMNS:
            lower.set_xlabel("confidence")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Reliability on test: bins (lo, hi], trials of a rung pooled", fontsize=8)
    return figure


def _numbers(sweep: Sweep, rung: int) -> str:
    rows = sweep.of_rung(rung)
    if rows.empty:
        return sweep.statuses(rung)
    ece = 100 * rows["test/ece"]
    spread = f" ± {ece.std(ddof=1):.2f}" if len(ece) > 1 else ""
    accuracy = 100 * rows["test/accuracy"].mean()
    return f"ECE {ece.mean():.2f}{spread} %\naccuracy {accuracy:.1f} %, n = {len(rows)}"


def _diagram(axis: Axes, bins: pd.DataFrame) -> None:
    shown = bins[bins["count"] > 0]
    width = shown["upper"] - shown["lower"]
    axis.bar(
        shown["lower"], shown["accuracy"], width, align="edge", color=style.color(9),
        edgecolor="white", linewidth=0.5, label="accuracy of the bin",
    )  # fmt: skip
    axis.bar(
        shown["lower"], shown["confidence"] - shown["accuracy"], width, bottom=shown["accuracy"],
        align="edge", color="none", edgecolor=style.color(3), hatch="////", linewidth=0.5,
        label="gap to its mean confidence",
    )  # fmt: skip
    axis.plot([0, 1], [0, 1], color="0.2", linewidth=0.8, linestyle="--", label="calibrated")
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.tick_params(labelbottom=False)
