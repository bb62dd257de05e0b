"""Curves over the epochs: the sparsity of MaC-Cal, and the gates of FeDLaS's single samples."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder import samples
from analysis.ladder.means import trials_behind
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from tune_calib.results.manifests import RungRecord

MAX_BANDS = 6  # the bands of more rungs would hide each other
DRAWN = ("over", "flipped", "pearson", "spearman")
_DRIVERS = {
    "q": "share of weights kept q\n(right: sparsity 1 - q)",
    "tau": "largest step τ of q",
    "train/accuracy": "accuracy",
}


def trajectory(sweep: Sweep, rung: int, name: str) -> pd.DataFrame:
    """Return mean, min and max of a recorded quantity over the trials of a rung, by epoch."""
    return sweep.curves_of(rung, name).groupby("epoch")["value"].agg(["mean", "min", "max"])


def adaptive_rungs(sweep: Sweep) -> list[RungRecord]:
    """Return the rungs whose keep probability moves."""
    moving = []
    for rung in sweep.rungs:
        q = sweep.curves_of(rung.index, "q")
        if len(q) and q["value"].max() - q["value"].min() > 1e-6:
            moving.append(rung)
    return moving


def draw_sparsity(results: LadderResults) -> Drawing | None:
    """Draw keep probability, its largest step, and what drives it, over the epochs of stage II."""
    sweep = results.sweep
    rungs = adaptive_rungs(sweep)
    if not rungs:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(style.TEXT_IN, 2.6))
    for axis, (name, text) in zip(axes, _DRIVERS.items(), strict=True):
        curves = {name: text}
        if name == "train/accuracy":
            curves["train/confidence"] = "confidence"
        for order, rung in enumerate(rungs):
            for own, what in curves.items():
                curve = trajectory(sweep, rung.index, own)
                # Shifted marks keep apart the rungs whose lines coincide.
                label = what.partition("\n")[0]
                _draw_curve(axis, curve, rung, label, 6, shift=order, is_band=True)
        axis.set_title("on the training split" if text == "accuracy" else text, fontsize=7.5)
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


def draw_samples(results: LadderResults) -> Drawing | None:
    """Draw proportions, flips and correlations over the epochs, a row of panels per split."""
    sweep, statistics = results.sweep, results.statistics
    if statistics.empty:
        return None
    known = set(statistics["spec_hash"])
    rungs = [r for r in sweep.rungs if known & set(sweep.of_rung(r.index)["spec_hash"])]
    figure, axes = plt.subplots(2, 4, figsize=(style.TEXT_IN, 4.4), sharex=True, sharey="col")
    for panels, (split, title) in zip(axes, samples.SPLITS.items(), strict=True):
        of_split = statistics[statistics["split"] == split]
        for axis, quantity in zip(panels, DRAWN, strict=True):
            what = samples.QUANTITIES[quantity].replace("\n", " ")
            scale = 100 if quantity in samples.SHARES else 1
            for rung in rungs:
                hashes = sweep.of_rung(rung.index)["spec_hash"]
                own = of_split[of_split["spec_hash"].isin(hashes)].dropna(subset=[quantity])
                curve = scale * own.groupby("epoch")[quantity].agg(["mean", "min", "max"])
                is_band = len(sweep.rungs) <= MAX_BANDS
                _draw_curve(axis, curve, rung, what, 20, is_band=is_band)
        panels[0].set_ylabel(title)
    for axis, quantity in zip(axes[0], DRAWN, strict=True):
        axis.set_title(samples.QUANTITIES[quantity], fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("epoch")
        style.whole_ticks(axis.xaxis)
    _add_legend(figure, sweep, rungs)
    return figure


def _draw_curve(
    axis: Axes,
    curve: pd.DataFrame,
    rung: RungRecord,
    what: str,
    marks: int,
    *,
    is_band: bool,
    shift: int = 0,
) -> None:
    """Draw a mean with about so many marks, and a band from the smallest to the largest."""
    if curve.empty:
        return
    color = style.color(rung.index)
    step = max(1, len(curve) // marks)
    start = shift * step // 2 % step
    (line,) = axis.plot(
        curve.index, curve["mean"], "--" if what == "confidence" else "-", color=color,
        linewidth=1.1, marker=style.marker(rung.index), markersize=3.2, markevery=(start, step),
    )  # fmt: skip
    marked = curve["mean"].iloc[start::step].items()
    label_points(line, [f"{rung.label}\nepoch {epoch}\n{what}: {v:.4g}" for epoch, v in marked])
    if is_band:
        axis.fill_between(
            curve.index, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0
        )


def _add_legend(figure: Drawing, sweep: Sweep, rungs: list[RungRecord]) -> None:
    handles = [
        Line2D(
            [], [], color=style.color(rung.index), marker=style.marker(rung.index), markersize=3.5,
            label=f"{rung.label} ({sweep.ended(rung.index)})",
        )
        for rung in rungs
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=7)


def _sparsity_caption(results: LadderResults) -> str:
    sweep = results.sweep
    moving = [sweep.curves_of(rung.index, "q")["spec_hash"] for rung in adaptive_rungs(sweep)]
    hashes = pd.concat(moving).unique() if moving else []
    return f"Mean, and a band from the smallest to the largest; {trials_behind(sweep, hashes)}."


def _samples_caption(results: LadderResults) -> str:
    behind = trials_behind(results.sweep, results.statistics["spec_hash"])
    return f"Mean, and (for few rungs) a band from the smallest to the largest; {behind}."


LADDER_FIGURES.register(
    Figure(
        name="sparsity",
        title="Sparsity over the epochs of stage II",
        reading=(
            "Share of weights that are kept, the largest step that it may take, and the accuracy "
            "and confidence on train that drive it."
        ),
        draw=draw_sparsity,
        caption=_sparsity_caption,
        absent="no rung has a keep probability q that moves",
        position=40,
    )
)
LADDER_FIGURES.register(
    Figure(
        name="samples",
        title="Gates of single samples over the epochs",
        reading=(
            "Shares, flips, and the correlation of the indicator with correctness; samples without "
            "gate +1 are under-confident."
        ),
        draw=draw_samples,
        caption=_samples_caption,
        position=50,
    )
)
