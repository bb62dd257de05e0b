"""How well each rung tells foreign images from the test split (as MaC-Cal, table 2)."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.means import mean_over
from analysis.ladder.results import LadderResults
from analysis.ladder.shift_tables import ShiftTable, means, shift_tables
from analysis.load import Sweep
from analysis.shifts import FOREIGN_MEAN
from analysis.svg import label_points
from analysis.text import number_cell
from tune_calib.spec.metrics import METRICS
from tune_calib.text import format_count

SHOWN = ("auroc", "fpr95")


def draw_ood(results: LadderResults) -> Drawing | None:
    """Draw a row of panels for each set of foreign images, a mark a rung.

    Returns:
        None if nothing was looked at on foreign images.
    """
    sweep = results.sweep
    table = next((each for each in shift_tables(sweep) if each.key == "ood"), None)
    if table is None:
        return None
    own = [each for each in table.columns if each.split != FOREIGN_MEAN]
    groups = list(dict.fromkeys(each.group for each in own))
    height = 0.9 + len(groups) * (0.5 + 0.17 * len(sweep.rungs))
    figure, axes = plt.subplots(
        len(groups), len(SHOWN), figsize=(style.TEXT_IN, height), sharey=True, squeeze=False,
    )  # fmt: skip
    for row, group in zip(axes, groups, strict=True):
        for axis, metric in zip(row, SHOWN, strict=True):
            _panel(axis, sweep, table, group, metric)
            axis.set_title(group, fontsize=8)
            axis.set_xlabel(METRICS[metric].head)
    return figure


def _panel(axis: Axes, sweep: Sweep, table: ShiftTable, group: str, metric: str) -> None:
    column = next(c for c in table.columns if (c.group, c.metric) == (group, metric))
    found = means(sweep, table)
    found = found[(found["set"] == column.split) & (found["metric"] == metric)]
    places = np.arange(len(sweep.rungs))
    for place, (_, row) in zip(places, found.iterrows(), strict=True):
        if row["n"]:
            spread = None if np.isnan(row["sd"]) else 100 * row["sd"]
            mark = axis.errorbar(
                100 * row["mean"], place, xerr=spread, color=style.color(int(row["rung"])),
                marker=style.marker(int(row["rung"])), markersize=5, linestyle="none",
                elinewidth=0.8,
            )  # fmt: skip
            value = number_cell(metric, row["mean"], row["sd"]).text
            told = f"{sweep.labels[int(row['rung'])]}\n{group}\n{METRICS[metric].head}: {value}"
            label_points(mark.lines[0], [f"{told}\n{format_count(row['n'], 'trial')}"])
    axis.set_yticks(places, [rung.label for rung in sweep.rungs], fontsize=7)
    axis.set_ylim(len(places) - 0.5, -0.5)
    axis.grid(axis="y", color="0.9", linewidth=0.6)


LADDER_FIGURES.register(
    Figure(
        name="ood",
        title="Foreign images told from the test split",
        reading=(
            "A mark a rung, its spread as a bar. AUROC: the probability that a test image has a "
            "larger confidence than a foreign one (50 % tells nothing). FPR95: the share of "
            "foreign images that are taken for its own at the confidence that 95 % of the test "
            "images reach."
        ),
        draw=draw_ood,
        caption=lambda results: (
            f"The score is the largest probability; {mean_over(results.sweep)}."
        ),
        position=85,
    )
)
