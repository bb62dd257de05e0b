"""Reliability diagrams with their confidence histograms."""

from itertools import compress
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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


def draw(sweep: Sweep) -> Figure | None:
    """One panel a rung: accuracy against confidence above, share of samples (log) below.

    Returns:
        None if no trial that is done has bins.
    """
    pooled = [pooled_bins(sweep, rung["index"]) for rung in sweep.rungs]
    has_bins = [bool((table["count"] > 0).any()) for table in pooled]
    if not any(has_bins):
        return None
    rungs, tables = list(compress(sweep.rungs, has_bins)), list(compress(pooled, has_bins))
    shares = pd.concat([table["share"] for table in tables])
    # Half the smallest share, so that the rarest bin has a bar too.
    floor = float(10 ** np.floor(np.log10(shares[shares > 0].min() / 2)))
    rows = -(-len(rungs) // COLUMNS)
    figure = plt.figure(figsize=(style.TEXT_IN, 2.7 * rows + 0.5))
    grid = figure.add_gridspec(2 * rows, COLUMNS, height_ratios=[3, 1] * rows)
    for place, (rung, bins) in enumerate(zip(rungs, tables, strict=True)):
        row, column = divmod(place, COLUMNS)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        upper.set_title(f"{rung['label']}\n{_numbers(sweep, rung['index'])}", fontsize=6.5)
        _diagram(upper, bins)
        _histogram(lower, bins, floor)
        if column == 0:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("share")
        if place >= len(rungs) - COLUMNS:
            lower.set_xlabel("confidence")
    figure.legend(
        handles=_legend(), loc="outside lower center", ncols=3, frameon=False, fontsize=7.5
    )
    absent = [rung["label"] for rung in sweep.rungs if rung not in rungs]
    figure.suptitle(_reading(absent), fontsize=7)
    return figure


def _reading(absent: list[str]) -> str:
    """How to read the figure, and which rungs it has not."""
    text = (
        "Reliability on test. Bars: bins (lo, hi], trials of a rung pooled by counts; empty bins "
        "not drawn.\nECE and accuracy: mean (± sd) over trials. Share of samples on a log scale."
    )
    return "\n".join(
        [text, *wrap(f"Without bins: {', '.join(absent)}.", 130)] if absent else [text]
    )


def _numbers(sweep: Sweep, rung: int) -> str:
    rows = sweep.of_rung(rung)
    if not {"test/ece", "test/accuracy"} <= set(rows) or rows["test/ece"].isna().all():
        return f"{sweep.failures(rung) or 'no ECE recorded'}\n"
    ece = 100 * rows["test/ece"].dropna()
    spread = f" ± {ece.std(ddof=1):.2f}" if len(ece) > 1 else ""
    accuracy = 100 * rows["test/accuracy"].mean()
    # Statuses are longer than a panel is wide, so they have a line of their own.
    ended = sweep.ended(rung)
    separator = ", " if ended.startswith("n =") else "\n"
    return f"ECE {ece.mean():.2f}{spread} %\naccuracy {accuracy:.1f} %{separator}{ended}"


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
    axis.plot([0, 1], [0, 1], color="0.2", linewidth=0.8, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.tick_params(labelbottom=False)


def _histogram(axis: Axes, bins: pd.DataFrame, floor: float) -> None:
    shown = bins[bins["count"] > 0]
    # Rare bins make the widest gaps above: on a linear scale nobody would see that they are rare.
    axis.set_yscale("log")
    width = shown["upper"] - shown["lower"]
    axis.bar(shown["lower"], shown["share"], width, align="edge", color="0.45")
    axis.set(ylim=(floor, 1), xticks=np.linspace(0, 1, 3))
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
    ]  # fmt: skip
