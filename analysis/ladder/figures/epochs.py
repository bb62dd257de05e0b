"""Figures of curves over the epochs: MaC-Cal's sparsity, and FeDLaS's gates of single samples."""

from collections.abc import Iterable

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import trials_behind
from analysis.ladder.results import QUANTITIES, SHARES, SPLITS, LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from tune_calib.results.manifests import RungRecord

MAX_BANDS = 6  # bands of more rungs would cover each other
DRAWN = ("over", "flipped", "pearson", "spearman")
_DRIVERS = {
    "share of weights kept q\n(right: sparsity 1 - q)": {"q": "share of weights kept q"},
    "largest step τ of q": {"tau": "largest step τ of q"},
    "on the training split": {"train/accuracy": "accuracy", "train/confidence": "confidence"},
}


def trajectory(sweep: Sweep, rung: int, name: str) -> pd.DataFrame:
    """Return the mean and range of a recorded quantity over the trials of a rung, by epoch."""
    return sweep.curves_of(rung, name).groupby("epoch")["value"].agg(["mean", "min", "max"])


def adaptive_rungs(sweep: Sweep) -> list[RungRecord]:
    """Return the rungs whose keep probability changes."""
    rungs = []
    for rung in sweep.rungs:
        values = sweep.curves_of(rung.index, "q")["value"]
        if values.max() - values.min() > 1e-6:
            rungs.append(rung)
    return rungs


def _caption(sweep: Sweep, hashes: Iterable[str]) -> str:
    band = f"a band from the smallest to the largest value if there are few {sweep.row_name}s"
    return f"Mean, with {band}; {trials_behind(sweep, hashes)}."


def _sparsity_caption(results: LadderResults) -> str:
    hashes: set[str] = set()
    for rung in adaptive_rungs(results.sweep):
        hashes.update(results.sweep.curves_of(rung.index, "q")["spec_hash"])
    return _caption(results.sweep, hashes)


@LADDER_FIGURES.register
@report_figure(
    name="sparsity",
    title="Sparsity over the epochs of stage II",
    reading=(
        "Share of kept weights, its largest allowed step, and the accuracy and confidence on "
        "train that drive it."
    ),
    caption=_sparsity_caption,
    absent="no keep probability q changes",
    position=40,
)
def draw_sparsity(results: LadderResults) -> Drawing | None:
    """Draw the keep probability, its largest step and its drivers over the epochs of stage II."""
    sweep = results.sweep
    rungs = adaptive_rungs(sweep)
    if not rungs:
        return None
    figure, axes = plt.subplots(1, len(_DRIVERS), figsize=(style.TEXT_IN, 2.6))
    for axis, (title, curves) in zip(axes, _DRIVERS.items(), strict=True):
        for order, rung in enumerate(rungs):
            for name, what in curves.items():
                curve = trajectory(sweep, rung.index, name)
                # Shifted marks distinguish rungs whose lines coincide.
                _draw_curve(axis, curve, rung, what=what, marks=6, shift=order)
        axis.set_title(title, fontsize=7.5)
        axis.set_xlabel("epoch of stage II")
        style.whole_ticks(axis.xaxis)
    axes[0].secondary_yaxis("right", functions=(lambda q: 1 - q, lambda q: 1 - q))
    lines = [
        Line2D([], [], color="0.2", linestyle="-", label="accuracy"),
        Line2D([], [], color="0.2", linestyle="--", label="confidence"),
    ]
    axes[2].legend(handles=lines, frameon=False, fontsize=7, loc="lower right")
    _add_legend(figure, sweep, rungs)
    return figure


@LADDER_FIGURES.register
@report_figure(
    name="samples",
    title="Gates of single samples over the epochs",
    reading=(
        "Share of gates that are +1 (over-confident; all others are under-confident), share of "
        "gates that flipped, and correlation of the indicator with correctness."
    ),
    caption=lambda results: _caption(results.sweep, results.statistics["spec_hash"]),
    position=50,
)
def draw_samples(results: LadderResults) -> Drawing | None:
    """Draw shares, flips and correlations over the epochs, with a row of panels per split."""
    sweep, statistics = results.sweep, results.statistics
    if statistics.empty:
        return None
    rows = statistics.merge(sweep.done[["spec_hash", "rung"]], on="spec_hash")
    rungs = [rung for rung in sweep.rungs if rung.index in set(rows["rung"])]
    figure, axes = plt.subplots(2, 4, figsize=(style.TEXT_IN, 4.4), sharex=True, sharey="col")
    for panels, (split, title) in zip(axes, SPLITS.items(), strict=True):
        panels[0].set_ylabel(title)
        for axis, quantity in zip(panels, DRAWN, strict=True):
            recorded = rows[rows["split"] == split].dropna(subset=[quantity])
            scale = 100 if quantity in SHARES else 1
            what = QUANTITIES[quantity].replace("\n", " ")
            is_band = len(sweep.rungs) <= MAX_BANDS
            for rung in rungs:
                epochs = recorded[recorded["rung"] == rung.index].groupby("epoch")[quantity]
                curve = scale * epochs.agg(["mean", "min", "max"])
                _draw_curve(axis, curve, rung, what=what, marks=20, is_band=is_band)
    for (upper, lower), quantity in zip(axes.T, DRAWN, strict=True):
        upper.set_title(QUANTITIES[quantity], fontsize=7)
        lower.set_xlabel("epoch")
        style.whole_ticks(lower.xaxis)
    _add_legend(figure, sweep, rungs)
    return figure


def _draw_curve(
    axis: Axes,
    curve: pd.DataFrame,
    rung: RungRecord,
    *,
    what: str,
    marks: int,
    is_band: bool = True,
    shift: int = 0,
) -> None:
    """Draw a mean with about ``marks`` marks, and a band from the smallest to the largest value."""
    if curve.empty:
        return
    color = style.color(rung.index)
    step = max(1, len(curve) // marks)
    start = shift * step // 2 % step
    pattern = "--" if what == "confidence" else "-"
    (line,) = axis.plot(
        curve.index, curve["mean"], pattern, color=color,
        linewidth=1.1, marker=style.marker(rung.index), markersize=3.2, markevery=(start, step),
    )  # fmt: skip
    marked = curve["mean"].iloc[start::step].items()
    label_points(line, [f"{rung.label}\nepoch {epoch}\n{what}: {v:.4g}" for epoch, v in marked])
    if is_band:
        axis.fill_between(
            curve.index, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0
        )


def _add_legend(figure: Drawing, sweep: Sweep, rungs: list[RungRecord]) -> None:
    marks = []
    for rung in rungs:
        label = f"{rung.label} ({sweep.ended(rung.index)})"
        color, marker = style.color(rung.index), style.marker(rung.index)
        marks.append(Line2D([], [], color=color, marker=marker, markersize=3.5, label=label))
    style.legend_below(figure, marks, 3)
