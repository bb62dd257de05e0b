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
    figure = plt.figure(figsize=(style.TEXT_IN, 2.55 * rows))
    grid = figure.add_gridspec(2 * rows, COLUMNS, height_ratios=[3, 1] * rows)
    for place, rung in enumerate(rungs):
        row, column = divmod(place, COLUMNS)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _panel(upper, lower, sweep, rung["index"], rung["label"])
        if column == 0:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("share")
        if place >= len(rungs) - COLUMNS:
            lower.set_xlabel("confidence")
    figure.suptitle("Reliability on test: bins (lo, hi], all seeds pooled", fontsize=9)
    return figure


def _panel(upper: Axes, lower: Axes, sweep: Sweep, rung: int, label: str) -> None:
    bins = pooled_bins(sweep, rung)
    upper.set_title(label, fontsize=7)
    upper.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, linestyle="--")
    upper.set(xlim=(0, 1), ylim=(0, 1))
    upper.tick_params(labelbottom=False)
    rows = sweep.of_rung(rung)
    if rows.empty:
        upper.text(0.5, 0.5, sweep.statuses(rung) or "no result", ha="center", fontsize=7)
        return
    width = bins["upper"] - bins["lower"]
    filled = bins["count"] > 0
    shown = bins[filled]
    upper.bar(
        shown["lower"], shown["accuracy"], width[filled], align="edge",
        color=style.color(0), edgecolor="white", linewidth=0.5, label="accuracy",
    )  # fmt: skip
    over = shown["confidence"] - shown["accuracy"]
    upper.bar(
        shown["lower"], over, width[filled], bottom=shown["accuracy"], align="edge", color="none",
        edgecolor=style.color(3), hatch="////", linewidth=0.5, label="gap to confidence",
    )  # fmt: skip
    ece = 100 * rows["test/ece"]
    spread = f" ± {ece.std(ddof=1):.2f}" if len(ece) > 1 else ""
    text = f"ECE {ece.mean():.2f}{spread} %\nacc. {100 * rows['test/accuracy'].mean():.1f} %"
    upper.text(0.04, 0.96, f"{text}\nn = {len(rows)}", va="top", fontsize=6.5)
    lower.bar(bins["lower"], bins["share"], width, align="edge", color="0.45", edgecolor="white")
    lower.set(ylim=(0, 1), xticks=np.linspace(0, 1, 3))
