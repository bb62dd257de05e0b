"""Figures with a dot per sample: feature norm against confidence, and t-SNE maps of logits.

They follow FeDLaS (ECCV 2026), Fig. 1c, and MaC-Cal, Fig. 2, but with logits: the prototype of a
class is the mean logit vector of its test samples minus the mean over all classes, so that heads of
any shape are comparable.
"""

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
from analysis.ladder.results import LadderResults, angles, correlations
from analysis.load import Sweep
from analysis.text import Cell
from analysis.tidy import settings
from tune_calib.results.tables import read_files, read_table

COLUMNS = 4
# Never normalised by FeDLaS, whatever its setting.
_NEVER_NORMALISED = ("constant", "random")
# After an epoch all samples share one pair of moments, so that the indicator is a scaled norm.
_SPLIT = "select"
_NUMBERED = 20  # up to this number of classes, each has its number in the map
_RECORD = ["rung", "name", "indicator", "confidence", "correct"]


def last_records(sweep: Sweep) -> pd.DataFrame:
    """Return the samples at the last epoch of one trial of each rung, the one of smallest seeds."""
    first = sweep.done.drop_duplicates("rung")
    used = settings(first).reindex(columns=["network.indicator", "network.normalise"])
    names = []
    for name, is_on in used.itertuples(index=False):
        is_raw = name in _NEVER_NORMALISED or str(is_on) == "False"
        names.append(f"{name} (raw)" if is_raw else f"{name} (normalised)")
    trials = first.assign(name=names).set_index("spec_hash")[["rung", "name"]]
    parts = [pd.DataFrame(columns=_RECORD)]
    for table in read_files(sweep.out, "samples"):
        rows = table.to_pandas()
        rows = rows[rows["spec_hash"].isin(trials.index) & (rows["split"] == _SPLIT)]
        if "confidence" in rows and len(rows):
            last = rows[rows["epoch"] == rows["epoch"].max()].dropna(subset="confidence")
            parts.append(last.astype({"spec_hash": str}).join(trials, on="spec_hash")[_RECORD])
    records: pd.DataFrame = pd.concat(parts[1:] or parts).sort_values("rung", kind="stable")
    return records.reset_index(drop=True)


def _absent(results: LadderResults) -> str:
    if results.statistics.empty:
        return ""  # no method records single samples, so nobody expects the figure
    return "the version that wrote these results did not record the confidence of single samples"


@LADDER_FIGURES.register
@report_figure(
    name="norm_confidence",
    title="Feature norm against softmax confidence",
    reading=(
        "One dot per sample of select after the last epoch, with Pearson's r and Spearman's "
        "rho; the indicator is shown as the loss uses it. "
        "Each panel shows one trial, the one with the smallest seeds."
    ),
    absent=_absent,
    position=60,
)
def draw_norm_confidence(results: LadderResults) -> Drawing | None:
    """Draw a panel for each rung with a dot for each sample, and both correlations above it."""
    records = last_records(results.sweep)
    rungs = [rung for rung in results.sweep.rungs if rung.index in set(records["rung"])]
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
        r = Cell.formatted(coefficients["pearson"], ".2f").text
        rho = Cell.formatted(coefficients["spearman"], ".2f").text
        label = style.panel_title(rung.label, COLUMNS)
        axis.set_title(f"{label}\nr = {r}, rho = {rho}, n = {len(rows)}", fontsize=6.5)
        if index % columns == 0:
            axis.set_ylabel("softmax confidence", fontsize=7)
        axis.set_xlabel(rows["name"].iloc[0], fontsize=7)
        axis.tick_params(labelsize=6.5)
        axis.set_ylim(0, 1.02)
    handles = []
    for label, color in zip(("right", "wrong"), colors.values(), strict=True):
        handle = Line2D(
            [], [], linestyle="none", marker="o", markersize=3, color=color, label=label
        )
        handles.append(handle)
    style.legend_below(figure, handles, 2)
    return figure


def _logits_of(sweep: Sweep) -> dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return logits (N, C) and labels (N,) of one trial of each rung, by the rung's index."""
    recorded = read_table(sweep.out, "logits").to_pandas()
    trials = sweep.trials.sort_values(["rung", "network_seed", "head_seed"], kind="stable")
    rungs = trials.set_index("spec_hash")["rung"]
    rungs = rungs[rungs.index.isin(recorded["spec_hash"])].drop_duplicates()  # the first of each
    logits = {}
    for name, rung in rungs.items():
        rows = recorded[recorded["spec_hash"] == name]
        values = np.stack(rows["logits"].tolist()).astype(float)
        logits[int(rung)] = values, rows["label"].to_numpy(np.int64)
    return logits


def _caption(results: LadderResults) -> str:
    logits_of_rungs = _logits_of(results.sweep)
    if not logits_of_rungs:
        return ""
    _, labels = next(iter(logits_of_rungs.values()))
    classes = len(np.unique(labels))
    even = np.degrees(np.arccos(-1 / (classes - 1)))
    return f"Evenly spread classes are {even:.1f}° apart."


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
    caption=_caption,
    position=90,
)
def draw_prototypes(results: LadderResults) -> Drawing | None:
    """Draw a t-SNE map of the logits of each rung, with the spread of the angles above it."""
    logits_of_rungs = _logits_of(results.sweep)
    if not logits_of_rungs:
        return None
    count = len(logits_of_rungs)
    figure, axes = style.panels(count, style.columns_of(count), 2.0)
    for axis, (rung, (logits, labels)) in zip(axes, logits_of_rungs.items(), strict=True):
        axis.set(xticks=[], yticks=[])
        _draw_map(axis, logits, labels)
        degrees = angles(logits, labels)
        span = f"{degrees.min():.0f}° to {degrees.max():.0f}°, sd {degrees.std():.1f}°"
        label = style.panel_title(results.sweep.labels[rung], COLUMNS)
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
    if len(classes) > _NUMBERED:
        return
    for label in classes:
        middle = np.median(points[labels == label], axis=0)
        axis.annotate(
            str(label), middle, fontsize=7, ha="center", va="center", weight="bold",
            bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
        )  # fmt: skip
