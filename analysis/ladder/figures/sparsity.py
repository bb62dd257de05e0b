"""The sparsity trajectory: what a rung keeps over the epochs of stage II, and what drives it."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.means import trials_behind
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from tune_calib.results.manifests import RungRecord

_MARKS_A_LINE = 6


def trajectory(sweep: Sweep, rung: int, name: str) -> pd.DataFrame:
    """Return mean, least and largest value of a quantity over the trials of a rung, by epoch."""
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
    """Draw keep probability, its largest step, and what drives it, over the epochs of stage II.

    Returns:
        None if no rung has a keep probability that moves.
    """
    sweep = results.sweep
    rungs = adaptive_rungs(sweep)
    if not rungs:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(style.TEXT_IN, 2.5))
    panels = {
        "q": "share of weights kept q",
        "tau": "largest step τ of q",
        "train/accuracy": "accuracy",
    }
    for axis, (name, text) in zip(axes, panels.items(), strict=True):
        for order, rung in enumerate(rungs):
            _line(axis, trajectory(sweep, rung.index, name), rung, order, text)
            if name == "train/accuracy":
                curve = trajectory(sweep, rung.index, "train/confidence")
                _line(axis, curve, rung, order, "confidence")
        axis.set_xlabel("epoch of stage II")
        style.whole_ticks(axis.xaxis)
        axis.set_ylabel("on the training split" if text == "accuracy" else text, fontsize=7.5)
    sparsity = axes[0].secondary_yaxis("right", functions=(lambda q: 1 - q, lambda q: 1 - q))
    sparsity.set_ylabel("sparsity 1 - q", fontsize=7.5)
    lines = [
        Line2D([], [], color="0.2", linestyle="-", label="accuracy"),
        Line2D([], [], color="0.2", linestyle="--", label="confidence"),
    ]
    axes[2].legend(handles=lines, frameon=False, fontsize=7, loc="lower right")
    keys = [
        Line2D(
            [], [], color=style.color(rung.index), marker=style.marker(rung.index), markersize=3.5,
            label=f"{rung.label} ({sweep.ended(rung.index)})",
        )
        for rung in rungs
    ]  # fmt: skip
    figure.legend(
        handles=keys, loc="outside lower center", ncols=min(2, len(rungs)), frameon=False,
        fontsize=7.5,
    )  # fmt: skip
    return figure


def _line(axis: Axes, curve: pd.DataFrame, rung: RungRecord, order: int, what: str) -> None:
    color = style.color(rung.index)
    step = max(1, len(curve) // _MARKS_A_LINE)
    # Marks of different rungs are shifted, so that lines that coincide are still told apart.
    start = order * step // 2 % step
    (line,) = axis.plot(
        curve.index, curve["mean"], "--" if what == "confidence" else "-", color=color,
        linewidth=1.2, marker=style.marker(rung.index), markersize=3.5, markevery=(start, step),
    )  # fmt: skip
    marked = curve["mean"].iloc[start::step]
    label_points(
        line, [f"{rung.label}\nepoch {epoch}\n{what}: {mean:.4g}" for epoch, mean in marked.items()]
    )
    axis.fill_between(curve.index, curve["min"], curve["max"], color=color, alpha=0.2, linewidth=0)


def _caption(results: LadderResults) -> str:
    sweep = results.sweep
    moving = [sweep.curves_of(rung.index, "q")["spec_hash"] for rung in adaptive_rungs(sweep)]
    hashes = pd.concat(moving).unique() if moving else []
    return f"Mean, and a band from the smallest to the largest; {trials_behind(sweep, hashes)}."


LADDER_FIGURES.register(
    Figure(
        name="sparsity",
        title="Sparsity over the epochs of stage II",
        reading=(
            "What is kept, the largest step that it may take, and the accuracy and confidence on "
            "train that drive it."
        ),
        draw=draw_sparsity,
        caption=_caption,
        absent="no rung has a keep probability q that moves",
        position=40,
    )
)
