"""Figures of a design: the contribution of each step, interactions, the lattice of combinations."""

from itertools import groupby, permutations
from string import ascii_uppercase

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.compare.effects import Effect, Lattice, compute_effects, design_of
from analysis.compare.gather import over_seeds
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.results import LadderResults
from analysis.text import minus
from tune_calib.results.selection import PATH
from tune_calib.spec.metrics import METRICS

_STEP_IN = 0.34  # height of a step
_ECE = METRICS["ece"]


def _list_effects(results: LadderResults, *kinds: str, is_behind: bool = False) -> list[Effect]:
    if results.run.manifest.design is None:
        return []
    effects = compute_effects(results.run, "ece")
    chosen = [effect for effect in effects if effect.kind in kinds]
    return [effect for effect in chosen if effect.is_behind == is_behind]


@LADDER_FIGURES.register
@report_figure(
    name="shapley",
    title="What each step contributes to the ECE",
    reading=(
        "Dots and thick lines: Shapley value, the mean contribution over all orders of the steps, "
        "with its simultaneous interval. Grey: from the smallest to the largest contribution over "
        "all orders. Crosses: the contribution in the order of the ladder. Less than 0 lowers the "
        "ECE."
    ),
    position=5,
)
def draw_shapley(results: LadderResults) -> Drawing | None:
    panels = {"as trained": _list_effects(results, "shapley")}
    if not panels["as trained"]:
        return None
    if behind := _list_effects(results, "shapley", is_behind=True):
        panels[f"behind it: {design_of(results.run).posthoc}"] = behind
    height = (_STEP_IN * len(panels["as trained"]) + 0.35) * len(panels) + 0.55
    size = (style.COLUMN_IN, height)
    figure, axes = style.subplots(len(panels), figsize=size, squeeze=False, sharex=True)
    for axis, (title, effects) in zip(axes.flat, panels.items(), strict=True):
        _draw_contributions(axis, effects)
        if len(panels) > 1:
            axis.set_title(title, fontsize=7.5, loc="left")
    axes.flat[-1].set_xlabel("change of the ECE (points)", fontsize=7.5)
    handles = [
        Line2D([], [], color="0.1", marker="o", markersize=4, label="Shapley value"),
        Line2D([], [], color="0.75", linewidth=4, label="over all orders"),
        Line2D([], [], color=style.CHOSEN, marker="x", linestyle="none", label="in the ladder"),
    ]
    style.legend_below(figure, handles, 3)
    return figure


def _draw_contributions(axis: Axes, effects: list[Effect]) -> None:
    for height, effect in enumerate(effects):
        least, most, value = (_ECE.scale * v for v in (effect.least, effect.most, effect.in_order))
        axis.hlines(height, least, most, color="0.75", linewidth=6, zorder=1)
        low, high = (_ECE.scale * end for end in (effect.decision.low, effect.decision.high))
        axis.hlines(height, low, high, color="0.1", linewidth=1.4, zorder=2)
        face = "0.1" if effect.decision.outcome in ("better", "worse") else "white"
        axis.plot(
            _ECE.scale * effect.decision.difference, height, "o", color="0.1", markersize=4.5,
            markerfacecolor=face, zorder=3,
        )  # fmt: skip
        axis.plot(value, height, "x", color=style.CHOSEN, markersize=5, zorder=4)
    axis.axvline(0, color="0.5", linewidth=0.8, zorder=0)
    axis.set_yticks(range(len(effects)), [effect.name for effect in effects], fontsize=7)
    axis.invert_yaxis()
    axis.margins(y=0.08)
    axis.tick_params(axis="x", labelsize=7)


@LADDER_FIGURES.register
@report_figure(
    name="interactions",
    title="Interactions of two steps in the ECE",
    reading=(
        "Points of ECE by which two steps together gain less (positive) or more (negative) than "
        "the sum of both; bold if it is decided. Diagonal: the main effect of the step. Empty: one "
        "of the two steps needs the other."
    ),
    position=6,
)
def draw_interactions(results: LadderResults) -> Drawing | None:
    if not _list_effects(results, "interaction"):
        return None
    steps = [factor.name for factor in design_of(results.run).factors]
    matrix = pd.DataFrame(np.nan, index=steps, columns=steps)
    texts = matrix.astype(object).fillna("")
    for effect in _list_effects(results, "main", "interaction"):
        column, _, second = effect.name.partition(" x ")
        row = second or column
        text = minus(_ECE.format(effect.decision.difference, signed=True))
        if effect.decision.outcome in ("better", "worse"):
            text = rf"$\bf{{{text}}}$"
        matrix.at[row, column] = _ECE.scale * effect.decision.difference
        texts.at[row, column] = text
    side = 0.42 * len(steps) + 0.95
    figure, axis = style.subplots(figsize=(style.COLUMN_IN, min(side, style.COLUMN_IN)))
    most = float(np.nanmax(matrix.abs().to_numpy()))
    sns.heatmap(
        matrix, annot=texts, fmt="", cmap="vlag", vmin=-most, vmax=most, ax=axis, cbar=False,
        linewidths=0.6, annot_kws={"fontsize": 6},
    )  # fmt: skip
    axis.tick_params(labelsize=6.5, length=0)
    axis.set_xticklabels(steps, rotation=35, ha="right")
    return figure


@LADDER_FIGURES.register
@report_figure(
    name="lattice",
    title="ECE of all combinations of the steps",
    reading=(
        "A circle is a combination of steps, coloured by its mean ECE, which it also names; lines "
        "add a step, and thick ones are those of the ladder. Letters name the steps."
    ),
    position=7,
)
def draw_lattice(results: LadderResults) -> Drawing | None:
    run = results.run
    if run.manifest.design is None or run.manifest.design.name in ("pairs", PATH):
        return None
    lattice = Lattice.of(run.manifest.design, run)
    means = over_seeds(run, "ece").values.mean()
    cells = [cell for cell, label in lattice.labels.items() if not np.isnan(means[label])]
    if len(cells) < 2:
        return None
    values = [_ECE.scale * means[lattice.labels[cell]] for cell in cells]
    letters = _abbreviate(lattice.steps)
    # The place of each cell: its position among those of its level, in the order of the steps.
    places: dict[frozenset[str], tuple[float, float]] = {}
    for level, of_level in groupby(sorted(cells, key=len), key=len):
        row = sorted(of_level, key=lambda cell: sorted(map(lattice.steps.index, cell)))
        for position, cell in enumerate(row):
            places[cell] = (position - (len(row) - 1) / 2, float(level))
    levels = len({len(cell) for cell in cells})
    figure, axis = style.subplots(figsize=(style.COLUMN_IN, 0.62 * levels + 0.8))
    edges, widths = [], []
    ladder = [lattice.in_order(step) for step in lattice.steps]
    for smaller, larger in permutations(cells, 2):
        if smaller < larger and len(larger) - len(smaller) == 1:
            edges.append([places[smaller], places[larger]])
            widths.append(1.6 if (smaller, larger) in ladder else 0.5)
    axis.add_collection(LineCollection(edges, colors="0.6", linewidths=widths, zorder=1))
    x, y = zip(*(places[cell] for cell in cells), strict=True)
    axis.scatter(x, y, c=values, cmap="viridis_r", s=210, zorder=2)
    middle = (min(values) + max(values)) / 2
    for cell, value in zip(cells, values, strict=True):
        shade = "white" if value > middle else "0.1"
        axis.annotate(
            f"{value:.1f}", places[cell], ha="center", va="center", fontsize=6, color=shade,
            zorder=3,
        )  # fmt: skip
        text = "".join(letters[step] for step in lattice.steps if step in cell)
        axis.annotate(
            text or lattice.labels[cell], places[cell], xytext=(0, -10), ha="center", va="top",
            textcoords="offset points", fontsize=5.5, zorder=3,
            bbox={"color": "white", "pad": 0.4},
        )  # fmt: skip
    axis.set_axis_off()
    axis.margins(0.08)
    texts = [f"{letter}: {step}" for step, letter in letters.items()]
    handles = [Line2D([], [], linestyle="none", label=text) for text in texts]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=6.5,
        handlelength=0, handletextpad=0, columnspacing=1.2,
    )  # fmt: skip
    return figure


def _abbreviate(steps: tuple[str, ...]) -> dict[str, str]:
    letters: dict[str, str] = {}
    for step in steps:
        free = (letter for letter in step.upper() + ascii_uppercase if letter.isalpha())
        letters[step] = next(letter for letter in free if letter not in letters.values())
    return letters
