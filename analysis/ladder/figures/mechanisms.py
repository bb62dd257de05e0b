"""Figures of what the papers' methods do: sparsity, gates, feature norms, prototypes of classes.

They follow FeDLaS (ECCV 2026), Fig. 1c, and MaC-Cal, Fig. 2, but with logits: the prototype of a
class is the mean logit vector of its test samples minus the mean over all classes, so that heads of
any shape are comparable.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import trials_behind
from analysis.ladder.results import QUANTITIES, SHARES, SPLITS, LadderResults, angles, correlations
from analysis.load import Run
from analysis.text import Cell
from analysis.tidy import settings
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import read_files, read_table

MAX_BANDS = 6  # bands of more rungs would cover each other
DRAWN = ("over", "flipped", "pearson", "spearman")
_DRIVERS = {
    "share of weights kept q\n(right: sparsity 1 - q)": {"q": "share of weights kept q"},
    "largest step τ of q": {"tau": "largest step τ of q"},
    "on the training split": {"train/accuracy": "accuracy", "train/confidence": "confidence"},
}


def trajectory(run: Run, rung: int, name: str) -> pd.DataFrame:
    return run.curves_of(rung, name).groupby("epoch")["value"].agg(["mean", "min", "max"])


def adaptive_rungs(run: Run) -> list[RungRecord]:
    ranges = [np.ptp(run.curves_of(rung.index, "q")["value"]) for rung in run.rungs]
    return [rung for rung, width in zip(run.rungs, ranges, strict=True) if width > 1e-6]


def _band_caption(run: Run, hashes: Iterable[str]) -> str:
    band = f"a band from the smallest to the largest value if there are few {run.row_name}s"
    return f"Mean, with {band}; {trials_behind(run, hashes)}."


def _sparsity_caption(results: LadderResults) -> str:
    run = results.run
    curves = [run.curves_of(rung.index, "q")["spec_hash"] for rung in adaptive_rungs(run)]
    return _band_caption(run, chain.from_iterable(curves))


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
    run = results.run
    rungs = adaptive_rungs(run)
    if not rungs:
        return None
    figure, axes = style.subplots(1, len(_DRIVERS), figsize=(style.TEXT_IN, 2.6))
    for axis, (title, curves) in zip(axes, _DRIVERS.items(), strict=True):
        for order, rung in enumerate(rungs):
            for name, label in curves.items():
                curve, pattern = trajectory(run, rung.index, name), "-"
                if label == "confidence":
                    pattern = "--"
                # Shifted marks distinguish rungs whose lines coincide.
                _draw_curve(axis, curve, rung, marks=6, shift=order, pattern=pattern)
        axis.set_title(title, fontsize=7.5)
        axis.set_xlabel("epoch of stage II")
        style.whole_ticks(axis.xaxis)
    axes[0].secondary_yaxis("right", functions=(lambda q: 1 - q, lambda q: 1 - q))
    line = partial(Line2D, [], [], color="0.2")
    lines = [line(label="accuracy"), line(linestyle="--", label="confidence")]
    axes[2].legend(handles=lines, frameon=False, fontsize=7, loc="lower right")
    _add_legend(figure, run, rungs)
    return figure


@LADDER_FIGURES.register
@report_figure(
    name="samples",
    title="Gates of single samples over the epochs",
    reading=(
        "Share of gates that are +1 (over-confident; all others are under-confident), share of "
        "gates that flipped, and correlation of the indicator with correctness."
    ),
    caption=lambda results: _band_caption(results.run, results.statistics["spec_hash"]),
    position=50,
)
def draw_samples(results: LadderResults) -> Drawing | None:
    run, statistics = results.run, results.statistics
    if statistics.empty:
        return None
    rows = statistics.merge(run.done[["spec_hash", "rung"]], on="spec_hash")
    rungs = run.rungs_in(rows)
    figure, axes = style.subplots(2, 4, figsize=(style.TEXT_IN, 4.4), sharex=True, sharey="col")
    for panels, (split, title) in zip(axes, SPLITS.items(), strict=True):
        panels[0].set_ylabel(title)
        for axis, quantity in zip(panels, DRAWN, strict=True):
            recorded = rows[rows["split"] == split].dropna(subset=[quantity])
            scale = 100 if quantity in SHARES else 1
            is_band = len(run.rungs) <= MAX_BANDS
            for rung in rungs:
                epochs = recorded[recorded["rung"] == rung.index].groupby("epoch")[quantity]
                curve = scale * epochs.agg(["mean", "min", "max"])
                _draw_curve(axis, curve, rung, marks=20, is_band=is_band)
    for (upper, lower), quantity in zip(axes.T, DRAWN, strict=True):
        upper.set_title(QUANTITIES[quantity], fontsize=7)
        lower.set_xlabel("epoch")
        style.whole_ticks(lower.xaxis)
    _add_legend(figure, run, rungs)
    return figure


def _draw_curve(
    axis: Axes, curve: pd.DataFrame, rung: RungRecord, *,
    marks: int, is_band: bool = True, shift: int = 0, pattern: str = "-",
) -> None:  # fmt: skip
    if curve.empty:
        return
    look, step = style.look(rung.index), max(1, len(curve) // marks)
    look |= {"markersize": 3.2, "markevery": (shift * step // 2 % step, step)}
    axis.plot(curve.index, curve["mean"], pattern, linewidth=1.1, **look)
    if is_band:
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
        axis.fill_between(curve.index, curve["min"], curve["max"], **band)


def _add_legend(figure: Drawing, run: Run, rungs: list[RungRecord]) -> None:
    marks = []
    for rung in rungs:
        label = f"{rung.label} ({run.ended(rung.index)})"
        marks.append(Line2D([], [], **style.look(rung.index), markersize=3.5, label=label))
    style.legend_below(figure, marks, 3)


_COLUMNS = 4
_NEVER_NORMALISED = ("constant", "random")  # by FeDLaS, whatever its setting
# After an epoch all samples share one pair of moments, so that the indicator is a scaled norm.
_SPLIT = "select"
_NUMBERED = 20  # up to this number of classes, each has its number in the map
_RECORD = ["rung", "name", "indicator", "confidence", "correct"]


def last_records(run: Run) -> pd.DataFrame:
    """Return the samples at the last epoch of one trial of each rung, the one of smallest seeds."""
    first = run.done.drop_duplicates("rung")
    used = settings(first).reindex(columns=["network.indicator", "network.normalise"])
    names = used["network.indicator"].map(str)
    is_raw = names.isin(_NEVER_NORMALISED) | (used["network.normalise"].map(str) == "False")
    names = names.astype(str) + np.where(is_raw, " (raw)", " (normalised)")  # also of no rows
    trials = first.assign(name=names).set_index("spec_hash")[["rung", "name"]]
    parts = [pd.DataFrame(columns=_RECORD)]
    for table in read_files(run.out, "samples"):
        rows = table.to_pandas()
        rows = rows[rows["spec_hash"].isin(trials.index) & (rows["split"] == _SPLIT)]
        if len(rows):
            last = rows[rows["epoch"] == rows["epoch"].max()]
            parts.append(last.astype({"spec_hash": str}).join(trials, on="spec_hash")[_RECORD])
    records: pd.DataFrame = pd.concat(parts[1:] or parts).sort_values("rung", kind="stable")
    return records.reset_index(drop=True)


@LADDER_FIGURES.register
@report_figure(
    name="norm_confidence",
    title="Feature norm against softmax confidence",
    reading=(
        "One dot per sample of select after the last epoch, with Pearson's r and Spearman's "
        "rho; the indicator is shown as the loss uses it. "
        "Each panel shows one trial, the one with the smallest seeds."
    ),
    position=60,
)
def draw_norm_confidence(results: LadderResults) -> Drawing | None:
    records = last_records(results.run)
    rungs = results.run.rungs_in(records)
    if not rungs:
        return None
    columns = style.columns_of(len(rungs))
    figure, axes = style.panels(len(rungs), columns, 2.1, sharey=True)
    colors = {True: style.color(9), False: style.color(3)}
    for index, (axis, rung) in enumerate(zip(axes, rungs, strict=True)):
        rows = records[records["rung"] == rung.index]
        # As pixels, since thousands of marks would make vector files slow.
        axis.scatter(
            rows["indicator"], rows["confidence"], s=3, c=rows["correct"].map(colors).tolist(),
            alpha=0.5, linewidths=0, rasterized=True,
        )  # fmt: skip
        coefficients = correlations(rows["indicator"], rows["confidence"])
        r, rho = (Cell.formatted(value, ".2f").text for value in coefficients.values())
        label = style.panel_title(rung.label, _COLUMNS)
        axis.set_title(f"{label}\nr = {r}, rho = {rho}, n = {len(rows)}", fontsize=6.5)
        if index % columns == 0:
            axis.set_ylabel("softmax confidence", fontsize=7)
        axis.set_xlabel(rows["name"].iloc[0], fontsize=7)
        axis.tick_params(labelsize=6.5)
        axis.set_ylim(0, 1.02)
    dot = partial(Line2D, [], [], linestyle="none", marker="o", markersize=3)
    handles = [dot(color=colors[True], label="right"), dot(color=colors[False], label="wrong")]
    style.legend_below(figure, handles, 2)
    return figure


def _logits_of(run: Run) -> dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return logits (N, C) and labels (N,) of one trial of each rung, by the rung's index."""
    recorded = read_table(run.out, "logits").to_pandas()
    trials = run.trials.sort_values(["rung", "network_seed", "head_seed"], kind="stable")
    rungs = trials.set_index("spec_hash")["rung"]
    rungs = rungs[rungs.index.isin(recorded["spec_hash"])].drop_duplicates()  # the first of each
    logits = {}
    for name, rung in rungs.items():
        rows = recorded[recorded["spec_hash"] == name]
        values = np.stack(rows["logits"].tolist()).astype(float)
        logits[int(rung)] = values, rows["label"].to_numpy(np.int64)
    return logits


def _angle_caption(results: LadderResults) -> str:
    for _, labels in _logits_of(results.run).values():
        even = np.degrees(np.arccos(-1 / (len(np.unique(labels)) - 1)))
        return f"Evenly spread classes are {even:.1f}° apart."
    return ""


@LADDER_FIGURES.register
@report_figure(
    name="prototypes",
    title="Classes in the logits",
    reading=(
        "t-SNE of some hundred test samples, with a colour and a number per class (distances "
        "between groups mean little). Above: the smallest and the largest angle between the "
        "centred mean logits of two classes, and the sd of all angles. "
        "Each panel shows one trial, the one with the smallest seeds."
    ),
    caption=_angle_caption,
    position=90,
)
def draw_prototypes(results: LadderResults) -> Drawing | None:
    logits_of_rungs = _logits_of(results.run)
    if not logits_of_rungs:
        return None
    count = len(logits_of_rungs)
    figure, axes = style.panels(count, style.columns_of(count), 2.0)
    for axis, (rung, (logits, labels)) in zip(axes, logits_of_rungs.items(), strict=True):
        axis.set(xticks=[], yticks=[])
        _draw_map(axis, logits, labels)
        degrees = angles(logits, labels)
        span = f"{degrees.min():.0f}° to {degrees.max():.0f}°, sd {degrees.std():.1f}°"
        label = style.panel_title(results.run.labels[rung], _COLUMNS)
        axis.set_title(f"{label}\n{span}, {len(labels)} samples", fontsize=6.5)
    return figure


def _draw_map(axis: Axes, logits: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    perplexity = min(30.0, (len(logits) - 1) / 3)
    # On one thread: fast enough for some hundred samples, and reproducible.
    with threadpool_limits(1):
        points = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(logits)
    # Not the style's colours, which mean methods.
    axis.scatter(
        points[:, 0], points[:, 1], c=labels % 20, cmap="tab20", s=4, linewidths=0, rasterized=True
    )
    classes = np.unique(labels)
    for label in classes if len(classes) <= _NUMBERED else ():
        middle = np.median(points[labels == label], axis=0)
        axis.annotate(
            str(label), middle, fontsize=7, ha="center", va="center", weight="bold",
            bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
        )  # fmt: skip
