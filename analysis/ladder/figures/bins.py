"""Figures of bins: reliability diagrams and confidence histograms, a panel per rung."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.load import Run
from analysis.text import Cell
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS

RESAMPLES = 2000
LEVEL = 0.95
CHANCE = f"{100 * LEVEL:.0f} % of chance"
FEW = 12  # up to this number of panels, a row has at most four, else six, so that all fit on a page


def pooled_bins(run: Run, rung: int) -> pd.DataFrame:
    """Pool the bins of a rung's trials, weighted by counts; the accuracy of an empty bin is NaN."""
    hashes = set(run.of_rung(rung)["spec_hash"])
    bins = run.bins[run.bins["spec_hash"].isin(hashes) & (run.bins["split"] == "test")]
    # Unweighted, a bin with one sample would count as much as a bin with hundreds.
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


def _panels(run: Run) -> tuple[list[tuple[RungRecord, pd.DataFrame]], int]:
    """Return the rungs with their non-empty pooled bins, and the number of columns of panels."""
    panels = []
    for rung in run.rungs:
        bins = pooled_bins(run, rung.index)
        filled = bins[bins["count"] > 0]
        if len(filled):
            panels.append((rung, filled))
    columns = style.columns_of(len(panels)) if len(panels) <= FEW else 6
    return panels, columns


def _write_texts(axis: Axes, run: Run, rung: RungRecord, columns: int) -> None:
    rows = run.of_rung(rung.index).reindex(columns=["test/ece", "test/accuracy"]).astype(float)
    mean, sd = rows.mean(), rows["test/ece"].std()
    # On a separate line, since statuses may be as long as a panel is wide.
    numbers = f"{run.failures(rung.index) or 'no ECE recorded'}\n"
    if mean.notna().all():
        accuracy = METRICS["accuracy"].format(mean["test/accuracy"])
        separator = ", " if run.is_done(rung.index) else "\n"
        numbers = f"ECE {Cell.number('ece', mean['test/ece'], sd).text} %\n"
        numbers += f"accuracy {accuracy} %{separator}{run.ended(rung.index)}"
    name = style.panel_title(rung.label, columns)
    axis.set_title(f"{name}\n{numbers}", fontsize=6.5 if columns < 6 else 6)


def _label_outer(axis: Axes, column: int, label: str) -> None:
    axis.tick_params(labelsize=6.5, labelleft=column == 0)
    if column == 0:
        axis.set_ylabel(label, fontsize=7)


def consistency_band(bins: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy range of each non-empty bin if calibrated, by consistency resampling.

    In each of ``RESAMPLES`` test sets, samples are drawn from the bins in proportion to their
    counts, and each is correct with a probability equal to the mean confidence of its bin. A set is
    as large as the test split, which the trials of a rung share. Unlike in a bootstrap of the
    outcomes, the range of a bin with one sample does not have a width of 0.
    """
    shown = bins[bins["count"] > 0]
    chance = np.random.default_rng(0)
    samples = round(shown["count"].sum() / shown["trials"].max())
    drawn = chance.multinomial(samples, shown["share"], size=RESAMPLES)
    drawn = np.maximum(drawn, 1)  # an empty bin would have no accuracy
    # Pooling may round a mean confidence past 1, which a binomial refuses.
    right = chance.binomial(drawn, shown["confidence"].clip(0, 1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(right / drawn, [tail, 1 - tail], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=shown.index)


def _draw_bars(axis: Axes, bins: pd.DataFrame, heights: "pd.Series[float]", **look: Any) -> None:
    look = {"edgecolor": "white", "align": "edge", "linewidth": 0.5, **look}
    axis.bar(bins["lower"], heights, bins["upper"] - bins["lower"], **look)


def _draw_diagram(axis: Axes, bins: pd.DataFrame) -> None:
    accuracy, gap = bins["accuracy"], bins["confidence"] - bins["accuracy"]
    red: dict[str, Any] = {"color": "none", "edgecolor": style.color(3), "hatch": "////"}
    _draw_bars(axis, bins, accuracy, color=style.color(9))
    _draw_bars(axis, bins, gap, bottom=accuracy, **red)
    band = consistency_band(bins)
    middle = (bins["lower"] + bins["upper"]) / 2
    axis.vlines(middle, band["low"], band["high"], color="0.1", linewidth=1)
    axis.plot([0, 1], [0, 1], color="0.1", linewidth=0.8, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.tick_params(labelbottom=False)


def _draw_shares(axis: Axes, bins: pd.DataFrame, floor: float) -> None:
    # Rare bins have the widest gaps above; on a linear scale their bars would not be visible.
    axis.set_yscale("log")
    _draw_bars(axis, bins, 100 * bins["share"], color="0.45")
    decades = range(int(np.log10(floor)) + 3, 3, 2)
    ticks = [10.0 ** (decade - 1) for decade in decades]
    axis.set(ylim=(100 * floor, 100), xticks=np.linspace(0, 1, 3))
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def _caption(results: LadderResults) -> str:
    run = results.run
    shown = {rung.index for rung, _ in _panels(run)[0]}
    absent = ", ".join(label for index, label in run.labels.items() if index not in shown)
    spread, pooled = mean_over(run), trials_behind(run, results.binned)
    text = f"ECE: {spread}." if pooled in spread else f"Pooled: {pooled}; ECE: {spread}."
    return f"{text} Without bins: {absent}." if absent else text


@LADDER_FIGURES.register
@report_figure(
    name="reliability",
    title="Reliability diagrams on test",
    reading=(
        "Accuracy of each non-empty bin (lo, hi] against confidence, pooled over the trials of "
        "a panel; below, the share of samples in each bin on a log scale. Bars below the "
        "diagonal are over-confident. Vertical lines: the range in which a calibrated network "
        "lies by chance, from resampled test sets in which the probability that a sample is "
        "correct is the mean confidence of its bin."
    ),
    caption=_caption,
    absent="no finished trial has bins",
    position=20,
)
def draw_reliability(results: LadderResults) -> Drawing | None:
    run = results.run
    shown, columns = _panels(run)
    if not shown:
        return None
    # Low enough for the smallest share to be visible.
    least = min(bins["share"].min() for _, bins in shown)
    floor = float(10 ** np.floor(np.log10(least / 2)))
    rows = -(-len(shown) // columns)
    figure = Drawing(figsize=(style.TEXT_IN, 10.2 / columns * rows + 0.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1.1] * rows)
    for index, (rung, bins) in enumerate(shown):
        row, column = divmod(index, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _write_texts(upper, run, rung, columns)
        _draw_diagram(upper, bins)
        _draw_shares(lower, bins, floor)
        _label_outer(upper, column, "accuracy")
        _label_outer(lower, column, "samples\n(%, log)")
        if row == rows - 1:
            lower.set_xlabel("confidence", fontsize=7)
    # Not taken from a diagram, which may lack a kind of bar.
    handles = [
        Line2D([], [], color="0.2", linewidth=0.8, linestyle="--", label="calibrated"),
        Patch(color=style.color(9), label="accuracy of the bin"),
        Patch(
            facecolor="none", edgecolor=style.color(3), hatch="////",
            label="gap to its mean confidence",
        ),
        Line2D([], [], color="0.1", linestyle="none", marker="|", markersize=8, label=CHANCE),
    ]  # fmt: skip
    style.legend_below(figure, handles, 4)
    return figure


@LADDER_FIGURES.register
@report_figure(
    name="confidence",
    title="Confidence on test of right and wrong samples",
    reading=(
        "Share of samples in each bin, pooled over the trials of a panel. Classifiers are "
        "over-confident if the mean confidence (dotted) is right of the accuracy (solid)."
    ),
    caption=lambda results: f"Pooled: {trials_behind(results.run, results.binned)}.",
    absent="no finished trial has bins",
    position=30,
)
def draw_confidence(results: LadderResults) -> Drawing | None:
    shown, columns = _panels(results.run)
    if not shown:
        return None
    figure, axes = style.panels(len(shown), columns, 7.0 / columns, sharex=True, sharey=True)
    for index, (axis, (rung, bins)) in enumerate(zip(axes, shown, strict=True)):
        _write_texts(axis, results.run, rung, columns)
        right = 100 * bins["share"] * bins["accuracy"]
        wrong = 100 * bins["share"] - right
        _draw_bars(axis, bins, right, color=style.color(9))
        _draw_bars(axis, bins, wrong, bottom=right, color=style.color(3))
        means = (bins[["accuracy", "confidence"]].mul(bins["share"], axis="index")).sum()
        axis.axvline(means["accuracy"], color="0.1", linewidth=1)
        axis.axvline(means["confidence"], color="0.1", linewidth=1, linestyle=":")
        axis.set(xlim=(0, 1), xticks=np.linspace(0, 1, 3))
        _label_outer(axis, index % columns, "samples (%)")
        is_lowest = index >= len(shown) - columns
        axis.tick_params(labelbottom=is_lowest)
        if is_lowest:
            axis.set_xlabel("confidence", fontsize=7)
    handles = [
        Patch(color=style.color(9), label="right samples"),
        Patch(color=style.color(3), label="wrong samples, on top"),
        Line2D([], [], color="0.1", linewidth=1, label="accuracy"),
        Line2D([], [], color="0.1", linewidth=1, linestyle=":", label="mean confidence"),
    ]
    style.legend_below(figure, handles, 4)
    return figure
