"""Figures that compare rungs: ECE against accuracy on test, and the mean ranks of methods."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.compare.hypotheses import Friedman
from analysis.compare.intervals import ALPHA
from analysis.compare.significance import friedman_sentence
from analysis.figure import LADDER_FIGURES, Figure, report_figure
from analysis.ladder.means import mean_over
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from analysis.text import Cell
from analysis.tidy import seeds_of, unbeaten
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS

_METRICS = ["accuracy", "ece"]
_ARROW = {"arrowstyle": "->", "color": "0.45", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4}
MANY = 15  # from this number of rungs on, a legend replaces the labels at the points
_KEY_IN = 0.15  # height of a line of the legend


def chains(sweep: Sweep) -> list[list[int]]:
    """Return the chains of rungs that build on each other: each base with its steps."""
    indices: list[list[int]] = []
    for index, rung in enumerate(sweep.rungs):
        if index == 0 or rung.kind == "base":
            indices.append([rung.index])
        elif rung.kind == "step":
            indices[-1].append(rung.index)
    return indices


def _caption(results: LadderResults) -> str:
    marks = f"Large marks: {mean_over(results.sweep)}"
    if results.sweep.done["rung"].duplicated().any():
        marks += "; small marks: single trials"
    if any(len(chain) > 1 for chain in chains(results.sweep)):
        return f"{marks}. Arrows lead from a rung to the next step; open marks are not steps."
    return f"{marks}. The base is filled; the dashed line is the Pareto front of the means."


@LADDER_FIGURES.register
@report_figure(
    name="tradeoff",
    title="ECE against accuracy on test",
    reading="Lower and further to the right is better.",
    caption=_caption,
    absent="no finished trial has accuracy and ECE on test",
    position=10,
)
def draw_tradeoff(results: LadderResults) -> Drawing | None:
    """Draw ECE against accuracy, with arrows between steps or the Pareto front of methods."""
    sweep = results.sweep
    columns = {"test/accuracy": "accuracy", "test/ece": "ece"}
    names = ["rung", "network_seed", "head_seed", *columns]
    points = sweep.done.reindex(columns=names).rename(columns=columns).dropna(subset=_METRICS)
    if points.empty:
        return None
    height = max(3.4, _KEY_IN * len(sweep.rungs) + 0.3)
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, height))
    rungs = [rung for rung in sweep.rungs if rung.index in set(points["rung"])]
    for rung in rungs:
        _draw_rung(axis, points[points["rung"] == rung.index], rung)
    means = 100 * points.groupby("rung")[_METRICS].mean()
    for chain in chains(sweep):
        shown = means.loc[list(filter(means.index.__contains__, chain))]
        for start, end in pairwise(shown.itertuples(index=False)):
            axis.annotate("", xy=end, xytext=start, arrowprops=_ARROW, zorder=1)
    if max(map(len, chains(sweep))) == 1:
        front = unbeaten(means, _METRICS)[::-1]
        axis.plot(front["accuracy"], front["ece"], "--", color="0.45", linewidth=0.9, zorder=1)
    axis.set(xlabel="test accuracy (%)", ylabel="test ECE (%)")
    axis.set_ylim(bottom=0)  # so that a small gain does not look large
    labels = []
    for rung in rungs:
        ended = "" if sweep.is_done(rung.index) else f" ({sweep.ended(rung.index)})"
        labels.append(f"{rung.label}{ended}")
    centres = list(means.loc[list(map(attrgetter("index"), rungs))].itertuples(index=False))
    is_named = len(rungs) < MANY and style.name_points(axis, labels, centres)
    handles = []
    for rung in sweep.rungs:
        is_empty = rung not in rungs
        if is_empty or not is_named:
            handles.append(_legend_mark(sweep, rung, is_empty))
    if handles:
        figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7)
    return figure


def _draw_rung(axis: Axes, rows: pd.DataFrame, rung: RungRecord) -> None:
    """Draw the trials of a rung, if several, and their mean with its spread."""
    x, y = 100 * rows["accuracy"], 100 * rows["ece"]
    look: dict[str, Any] = {"color": style.color(rung.index), "marker": style.marker(rung.index)}
    spread: dict[str, Any] = {}
    count = "1 trial"
    if len(rows) > 1:
        spread, count = {"xerr": x.std(), "yerr": y.std()}, f"mean over {len(rows)} trials"
        small = axis.scatter(x, y, s=9, alpha=0.5, linewidths=0, **look)
        # An iterator, since no texts are needed for thousands of trials.
        label_points(small, map(partial(_describe_trial, rung), rows.to_dict("records")))
    mean = axis.errorbar(
        x.mean(), y.mean(), **spread, **look, markersize=6, markerfacecolor=_face(rung),
        linestyle="none", elinewidth=0.8,
    )  # fmt: skip
    cells = [Cell.number(m, rows[m].mean(), rows[m].std()) for m in _METRICS]
    label_points(mean.lines[0], [_describe(rung, count, cells)])


def _describe_trial(rung: RungRecord, row: dict[Any, Any]) -> str:
    return _describe(rung, seeds_of(row), [Cell.number(name, row[name]) for name in _METRICS])


def _describe(rung: RungRecord, what: str, cells: Sequence[Cell]) -> str:
    lines = [rung.label, what]
    for name, cell in zip(_METRICS, cells, strict=True):
        lines.append(f"{METRICS[name].head}: {cell.text}")
    return "\n".join(lines)


def _face(rung: RungRecord) -> str | tuple[float, float, float]:
    """Return the fill of a mark: none unless the rung is a base or a step."""
    return style.color(rung.index) if rung.kind in ("base", "step") else "none"


def _legend_mark(sweep: Sweep, rung: RungRecord, is_empty: bool) -> Line2D:
    """Return a mark and a label; for a rung without values, a label with the reason."""
    index = rung.index
    marker, label = style.marker(index), f"{rung.label} ({sweep.ended(index)})"
    if is_empty:
        marker, label = "", f"{rung.label}: {sweep.failures(index) or 'no numbers'}"
    return Line2D(
        [], [], linestyle="none", marker=marker, markersize=6, color=style.color(index),
        markerfacecolor=_face(rung), label=label,
    )  # fmt: skip


def draw_critical_difference(result: Friedman | None) -> Drawing | None:
    """Draw mean ranks on a line; bars join methods that do not differ in Nemenyi's test."""
    if result is None or result.statement:
        return None
    methods = list(result.ranks.index)
    p_values = result.nemenyi
    if p_values is None:  # Friedman's test is not significant: with p = 1, one bar joins all
        p_values = pd.DataFrame(1.0, index=methods, columns=methods)
    colors = {method: style.color(index) for index, method in enumerate(methods)}
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 1.3 + 0.1 * len(methods)))
    import scikit_posthocs  # takes half a second, and most reports have no such diagram

    drawn = scikit_posthocs.critical_difference_diagram(
        result.ranks,
        p_values,
        ax=axis,
        alpha=ALPHA,
        label_fmt_left="{label} ({rank:.2f})",
        label_fmt_right="({rank:.2f}) {label}",
        label_props={"fontsize": 7},
        marker_props={"s": 0},
        elbow_props={"linewidth": 1},
        crossbar_props={"linewidth": 2.5},
        color_palette=colors,
        text_h_margin=0.01 * (result.ranks.max() - result.ranks.min()),
    )
    for (bar,) in drawn["crossbars"]:
        # Its points come from a set, whose order differs between processes.
        bar.set_xdata(np.sort(bar.get_xdata()))
    for label in drawn["labels"]:
        label.set_color("0.1")  # the palest colours are not legible as text
    # The marks of the library, hidden above, have one shape for all methods.
    for index, (method, rank) in enumerate(result.ranks.items()):
        axis.scatter(rank, 0, s=24, color=colors[method], marker=style.marker(index), zorder=10)
    axis.set_xlabel(f"mean rank by {METRICS[result.metric].head}, 1 is best", fontsize=8)
    axis.xaxis.set_label_position("top")
    return figure


def _ranks_caption(results: LadderResults) -> str:
    test = results.friedman
    if test is None:
        return ""
    return f"{friedman_sentence(test)} Complete blocks: {test.blocks}; a block is a {test.unit}."


LADDER_FIGURES.register(
    Figure(
        name="critical_difference",
        title="Mean ranks of the methods",
        reading=(
            "Friedman's test over the blocks; bars join methods that do not differ in Nemenyi's."
        ),
        draw=lambda results: draw_critical_difference(results.friedman),
        caption=_ranks_caption,
        absent=lambda results: results.friedman.statement if results.friedman else "",
        position=100,
    )
)
