"""Figures that compare rungs: ECE against accuracy, the mean ranks of methods, and cost."""

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.compare.hypotheses import Friedman
from analysis.compare.intervals import ALPHA
from analysis.compare.significance import friedman_sentence
from analysis.figure import LADDER_FIGURES, Figure, report_figure
from analysis.ladder.means import mean_over, trials_of_each
from analysis.ladder.results import COST_PARTS, LadderResults, costs
from analysis.load import Run
from analysis.text import Cell
from analysis.tidy import unbeaten
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import is_never_best

_METRICS = ["accuracy", "ece"]
_ARROW = {"arrowstyle": "->", "color": "0.45", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4}
_KEY_IN = 0.15  # height of a line of the legend
_MOST_POINTS = 1000  # of a rung; more of them become an image in a PDF


def chains(run: Run) -> list[list[int]]:
    indices: list[list[int]] = []
    for index, rung in enumerate(run.rungs):
        if index == 0 or rung.kind == "base":
            indices.append([rung.index])
        elif rung.kind == "step":
            indices[-1].append(rung.index)
    return indices


def _caption(results: LadderResults) -> str:
    marks = f"Large marks: {mean_over(results.run)}"
    if results.run.done["rung"].duplicated().any():
        marks += "; small marks: single trials"
    if any(len(chain) > 1 for chain in chains(results.run)):
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
    run = results.run
    columns = {"test/accuracy": "accuracy", "test/ece": "ece"}
    points = run.done.reindex(columns=["rung", *columns]).rename(columns=columns)
    points = points.dropna(subset=_METRICS)
    if points.empty:
        return None
    height = max(3.4, _KEY_IN * len(run.rungs) + 0.3)
    figure, axis = style.subplots(figsize=(style.TEXT_IN, height))
    rungs, handles = run.rungs_in(points), []
    for rung in run.rungs:
        look, label = style.look(rung.index), f"{rung.label} ({run.ended(rung.index)})"
        look |= {"linestyle": "none", "markersize": 6}
        look["markerfacecolor"] = look["color"] if rung.kind in ("base", "step") else "none"
        if rung in rungs:
            _draw_rung(axis, points[points["rung"] == rung.index], dict(look))
        else:
            look["marker"], label = "", f"{rung.label}: {run.failures(rung.index) or 'no numbers'}"
        handles.append(Line2D([], [], **look, label=label))
    means = 100 * points.groupby("rung")[_METRICS].mean()
    for chain in chains(run):
        shown = means.loc[[rung for rung in chain if rung in means.index]]
        for start, end in pairwise(shown.itertuples(index=False)):
            axis.annotate("", xy=end, xytext=start, arrowprops=_ARROW, zorder=1)
    if max(map(len, chains(run))) == 1:
        rivals = means[[not is_never_best(run.flags(rung)) for rung in means.index]]
        front = unbeaten(rivals, _METRICS)[::-1]
        axis.plot(front["accuracy"], front["ece"], "--", color="0.45", linewidth=0.9, zorder=1)
    axis.set(xlabel="test accuracy (%)", ylabel="test ECE (%)")
    axis.set_ylim(bottom=0)  # so that a small gain does not look large
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7)
    return figure


def _draw_rung(axis: Axes, rows: pd.DataFrame, look: dict[str, Any]) -> None:
    x, y = 100 * rows["accuracy"], 100 * rows["ece"]
    if len(rows) > 1:
        look |= {"xerr": x.std(), "yerr": y.std()}
        is_image = len(rows) > _MOST_POINTS
        mark = {"color": look["color"], "marker": look["marker"]}
        axis.scatter(x, y, s=9, alpha=0.5, linewidths=0, rasterized=is_image, **mark)
    axis.errorbar(x.mean(), y.mean(), **look, elinewidth=0.8)


def draw_critical_difference(result: Friedman | None) -> Drawing | None:
    if result is None or result.statement:
        return None
    methods, p_values = list(result.ranks.index), result.nemenyi
    if p_values is None:  # Friedman's test is not significant: with p = 1, one bar joins all
        p_values = pd.DataFrame(1.0, index=methods, columns=methods)
    colors = {method: style.color(index) for index, method in enumerate(methods)}
    figure, axis = style.subplots(figsize=(style.TEXT_IN, 1.3 + 0.1 * len(methods)))
    import scikit_posthocs  # takes half a second, and most reports have no such diagram

    drawn = scikit_posthocs.critical_difference_diagram(
        result.ranks, p_values, ax=axis, alpha=ALPHA, color_palette=colors,
        label_fmt_left="{label} ({rank:.2f})", label_fmt_right="({rank:.2f}) {label}",
        label_props={"fontsize": 7}, marker_props={"s": 0},
        elbow_props={"linewidth": 1}, crossbar_props={"linewidth": 2.5, "color": "0.1"},
        text_h_margin=0.01 * (result.ranks.max() - result.ranks.min()),
    )  # fmt: skip
    for (bar,) in drawn["crossbars"]:
        # Its points come from a set, whose order differs between processes.
        bar.set_xdata(np.sort(bar.get_xdata()))
    for label in drawn["labels"]:
        label.set_color("0.1")  # the palest colours are not legible as text
    # The marks of the library, hidden above, have one shape for all methods.
    for index, rank in enumerate(result.ranks):
        axis.scatter(rank, 0, s=24, zorder=10, **style.look(index))
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


PANELS = {
    "own_s": "own time\nof a trial (s)",
    "total_s": "with its network\nand bank (s)",
    "memory_mib": "peak memory\n(MiB)",
}
_OTHER = {"own_s": "memory", "memory_mib": "time"}  # missing if a rung has only the other
_GREYS = {"network_s": "0.8", "bank_s": "0.55"}
_OWN_TIME = (
    "Time of training and evaluation without set-up: for a head, its share of the time of the "
    "heads trained together, and for a post-hoc method, its fit and evaluation."
)


def cost_table(run: Run) -> pd.DataFrame:
    measured, rows = costs(run), []
    for (index, label), quantity in product(run.labels.items(), PANELS):
        trials = measured[measured["rung"] == index].dropna(subset=quantity)
        if trials.empty:
            continue
        row: dict[Any, Any] = {"rung": index, "label": label, "quantity": quantity}
        row["n"] = len(trials)
        row |= trials[quantity].agg(median="median", least="min", most="max").to_dict()
        if quantity == "total_s":
            row |= trials[[*COST_PARTS, "ratio"]].median().to_dict()
        rows.append(row)
    return pd.DataFrame(rows or {"rung": [], "quantity": [], "n": []})


@LADDER_FIGURES.register
@report_figure(
    name="cost",
    title="Cost of the trials",
    reading=(
        "Memory is the peak of the process, which may have run other trials before. The second "
        "panel adds the full cost of the network and feature bank of a head or post-hoc "
        "method, though trials share them, with the ratio to plain training in brackets. Times "
        "are comparable only if they were all measured on one idle machine."
    ),
    caption=lambda results: (
        f"{_OWN_TIME} Bars show medians, and lines the range; "
        f"{trials_of_each(results.run, list(cost_table(results.run)['n']) or [0])}."
    ),
    absent="no finished trial has its seconds or memory",
    position=70,
)
def draw_cost(results: LadderResults) -> Drawing | None:
    run = results.run
    table = cost_table(run)
    if table.empty:
        return None
    rungs = list(table["rung"].unique())
    shown = [quantity for quantity in PANELS if quantity in set(table["quantity"])]
    figure, axes = style.subplots(
        1, len(shown), figsize=(style.TEXT_IN, 0.19 * len(rungs) + 1.0), sharey=True, squeeze=False
    )
    for axis, quantity in zip(axes.flat, shown, strict=True):
        rows = table[table["quantity"] == quantity]
        _draw_bars(axis, rows, list(map(rungs.index, rows["rung"])), quantity)
        axis.set_xlabel(PANELS[quantity], fontsize=7.5)
    labels = []
    for rung in rungs:
        rows = table[(table["rung"] == rung) & table["quantity"].isin(list(_OTHER))]
        counts = " and ".join(dict.fromkeys(map(str, rows["n"])))
        if len(rows) < len(_OTHER):
            counts += f", no {_OTHER[rows['quantity'].item()]}"
        labels.append(f"{run.labels[rung]} (n = {counts})")
    axes[0, 0].set_yticks(range(len(rungs)), labels, fontsize=7)
    axes[0, 0].invert_yaxis()
    if "total_s" in shown:
        handles = [Patch(color=grey, label=COST_PARTS[part]) for part, grey in _GREYS.items()]
        style.legend_below(figure, handles, 2)
    return figure


def _draw_bars(axis: Axes, rows: pd.DataFrame, heights: list[int], quantity: str) -> None:
    colors = list(map(style.color, rows["rung"]))
    axis.barh(heights, rows["median"], height=0.7, color=colors)
    if quantity == "total_s":  # the rest of a bar is the trial's own time
        left = 0.0 * rows["median"]
        for part, grey in _GREYS.items():
            axis.barh(heights, rows[part], height=0.7, left=left, color=grey)
            left = left + rows[part]
    for height, row in zip(heights, rows.to_dict("records"), strict=True):
        text = Cell.measured(row["median"]).text
        if row["n"] > 1:
            axis.hlines(height, row["least"], row["most"], color="0.1", linewidth=1)
        if not math.isnan(row.get("ratio", math.nan)):
            text += f" ({row['ratio']:.2f} x)"
        axis.annotate(
            text, (row["most"], height), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    # Room for the numbers behind the bars.
    room = 1.75 if quantity == "total_s" else 1.35
    axis.set_xlim(0, room * rows["most"].max())
    axis.margins(y=0.02)
    axis.tick_params(labelsize=7)
