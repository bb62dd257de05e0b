"""Reliability diagrams and confidence histograms, a panel a rung."""

from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.load import Sweep
from tune_calib.manifests import RungRecord

RESAMPLES = 2000
LEVEL = 0.95
_FEW = 12  # so many panels stand four in a row; more of them six, so that a page holds them
_SEED = 0
_CHANCE = f"{100 * LEVEL:.0f} % of chance"


class Panel(NamedTuple):
    """A rung that has bins, and its pooled bins."""

    rung: RungRecord
    bins: pd.DataFrame


def pooled_bins(sweep: Sweep, rung: int, split: str = "test") -> pd.DataFrame:
    """Bins of a rung, its trials pooled by their counts.

    Returns:
        Columns lower, upper, count, confidence, accuracy (NaN in an empty bin), share, and
        trials, how many were pooled.
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
        trials=bins["spec_hash"].nunique(),
    )


def consistency_band(bins: pd.DataFrame, seed: int = _SEED) -> pd.DataFrame:
    """How far the accuracy of a bin may lie from its confidence by chance alone.

    Consistency resampling: as many test samples as the split has are drawn anew with the shares
    of the bins, each is right with the mean confidence of its bin, and the accuracy of each bin is
    taken; ``RESAMPLES`` times. The trials of a rung share the test split, so pooling them makes the
    sample no larger. Unlike a bootstrap of the outcomes, it is not 0 wide in a bin of one sample.

    Args:
        bins: as of ``pooled_bins``.
        seed: of the draws.

    Returns:
        Index of ``bins`` without those that are empty; columns low and high, the middle ``LEVEL``
        of the draws. Fractions.
    """
    shown = bins[bins["count"] > 0]
    chance = np.random.default_rng(seed)
    samples = round(shown["count"].sum() / shown["trials"].max())
    drawn = chance.multinomial(samples, shown["share"], size=RESAMPLES)
    drawn = np.maximum(drawn, 1)  # a bin that is drawn empty has no accuracy to lie anywhere
    right = chance.binomial(drawn, shown["confidence"].clip(0, 1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(right / drawn, [tail, 1 - tail], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=shown.index)


def draw(sweep: Sweep) -> Figure | None:
    """Accuracy against confidence of each rung above, share of samples (log) below.

    Returns:
        None if no trial that is done has bins.
    """
    panels = _panels(sweep)
    if not panels:
        return None
    shares = pd.concat([panel.bins["share"] for panel in panels])
    # Half the smallest share, so that the rarest bin has a bar too.
    floor = float(10 ** np.floor(np.log10(shares[shares > 0].min() / 2)))
    columns, rows = _shape(len(panels))
    figure = plt.figure(figsize=(style.TEXT_IN, 10.2 / columns * rows + 0.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1.1] * rows)
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _title(upper, sweep, panel.rung, columns)
        _diagram(upper, panel.bins)
        _histogram(lower, panel.bins, floor)
        for axis, label in ((upper, "accuracy"), (lower, "samples\n(%, log)")):
            _label_outer(axis, column, label)
        lower.set_xlabel("confidence" if row == rows - 1 else "", fontsize=7)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    absent = [rung.label for rung in sweep.rungs if rung not in [p.rung for p in panels]]
    figure.suptitle(_reading(absent), fontsize=7)
    return figure


def draw_confidence(sweep: Sweep) -> Figure | None:
    """How often each rung says what confidence, right and wrong samples apart.

    Returns:
        None if no trial that is done has bins.
    """
    panels = _panels(sweep)
    if not panels:
        return None
    columns, rows = _shape(len(panels))
    figure, axes = plt.subplots(
        rows, columns, figsize=(style.TEXT_IN, 7.0 / columns * rows + 0.6), sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.set_axis_off()
            continue
        _title(axis, sweep, panels[place].rung, columns)
        _confidence_histogram(axis, panels[place].bins)
        _label_outer(axis, place % columns, "samples (%)")
        axis.tick_params(labelbottom=place >= len(panels) - columns)
        axis.set_xlabel("confidence" if place // columns == rows - 1 else "", fontsize=7)
    figure.legend(
        handles=_confidence_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=7
    )
    figure.suptitle(
        "Confidence on test, trials of a rung pooled; where the dotted line is right of the solid "
        "one, the rung is over-confident.", fontsize=7,
    )  # fmt: skip
    return figure


def _panels(sweep: Sweep) -> list[Panel]:
    panels = [Panel(rung, pooled_bins(sweep, rung.index)) for rung in sweep.rungs]
    return [panel for panel in panels if (panel.bins["count"] > 0).any()]


def _shape(panels: int) -> tuple[int, int]:
    """Columns and rows."""
    columns = 4 if panels <= _FEW else 6
    return columns, -(-panels // columns)


def _label_outer(axis: Axes, column: int, label: str) -> None:
    axis.set_ylabel(label if column == 0 else "", fontsize=7)
    axis.tick_params(labelsize=6.5, labelleft=column == 0)


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


def _title(axis: Axes, sweep: Sweep, rung: RungRecord, columns: int) -> None:
    name = "\n".join(wrap(rung.label, 116 // columns))
    axis.set_title(f"{name}\n{_numbers(sweep, rung.index)}", fontsize=6.5 if columns < 6 else 6)


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


def _confidence_histogram(axis: Axes, bins: pd.DataFrame) -> None:
    """Right samples below, wrong ones on top of them; mean confidence and accuracy as lines."""
    shown = bins[bins["count"] > 0]
    width = shown["upper"] - shown["lower"]
    right = 100 * shown["share"] * shown["accuracy"]
    wrong = 100 * shown["share"] - right
    shape: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.5}
    axis.bar(shown["lower"], right, width, color=style.color(9), **shape)
    axis.bar(shown["lower"], wrong, width, bottom=right, color=style.color(3), **shape)
    means = (shown[["accuracy", "confidence"]].mul(shown["share"], axis="index")).sum()
    axis.axvline(means["accuracy"], color="0.1", linewidth=1)
    axis.axvline(means["confidence"], color="0.1", linewidth=1, linestyle=":")
    axis.set(xlim=(0, 1), xticks=np.linspace(0, 1, 3))


def _confidence_legend() -> list[Line2D | Patch]:
    return [
        Patch(color=style.color(9), label="right samples"),
        Patch(color=style.color(3), label="wrong samples, on top"),
        Line2D([], [], color="0.1", linewidth=1, label="accuracy"),
        Line2D([], [], color="0.1", linewidth=1, linestyle=":", label="mean confidence"),
    ]


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
