"""Critical difference diagram: mean ranks of methods, with bars over those that do not differ."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.compare.intervals import ALPHA
from analysis.compare.significance import friedman_sentence
from analysis.compare.tests import Friedman
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.results import LadderResults
from tune_calib.spec.metrics import METRICS


def draw_critical_difference(result: Friedman | None) -> Drawing | None:
    """Draw mean ranks on a line; bars join methods that do not differ in Nemenyi's test."""
    if result is None or result.statement:
        return None
    methods = list(result.ranks.index)
    # Without a significant Friedman test there is no Nemenyi test: with p = 1, one bar joins all.
    same = pd.DataFrame(1.0, index=methods, columns=methods)
    colors = {method: style.color(index) for index, method in enumerate(methods)}
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 1.3 + 0.1 * len(methods)))
    import scikit_posthocs  # takes half a second, and most reports have no such diagram

    drawn = scikit_posthocs.critical_difference_diagram(
        result.ranks,
        same if result.nemenyi is None else result.nemenyi,
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


def _caption(results: LadderResults) -> str:
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
        caption=_caption,
        absent=lambda results: results.friedman.statement if results.friedman else "",
        position=100,
    )
)
