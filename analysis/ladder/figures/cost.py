"""Figure of cost: seconds and memory of the trials of each rung."""

import math
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import trials_of_each
from analysis.ladder.results import COST_PARTS, LadderResults, costs, has_own_time
from analysis.load import Sweep
from analysis.svg import label_points
from analysis.text import Cell
from tune_calib.text import format_count

PANELS = {
    "seconds": "own time\nof a trial (s)",
    "total_s": "with its network\nand bank (s)",
    "memory_mib": "peak memory\n(MiB)",
}
_OTHER = {"seconds": "memory", "memory_mib": "time"}  # missing if a rung has only the other
_GREYS = {"network_s": "0.8", "bank_s": "0.55"}
_OWN_TIME = (
    "Time of training and evaluation without set-up: for a head, its share of the time of the "
    "heads trained together, and for a post-hoc method, its fit and evaluation."
)
_RAY_TIME = (
    "The version that wrote these results did not record the time of each trial. Shown is the time "
    "of its Ray trial with set-up, divided by the number of heads trained together; post-hoc "
    "methods have no time, since their Ray trial trained the network."
)


def cost_table(sweep: Sweep) -> pd.DataFrame:
    """Return the median and range of each quantity of ``PANELS`` for every measured rung."""
    measured, rows = costs(sweep), []
    for (index, label), quantity in product(sweep.labels.items(), PANELS):
        trials = measured[measured["rung"] == index].dropna(subset=quantity)
        if trials.empty:
            continue
        row: dict[Any, Any] = {
            "rung": index,
            "label": label,
            "quantity": quantity,
            "n": len(trials),
        }
        row |= trials[quantity].agg(median="median", least="min", most="max").to_dict()
        if quantity == "total_s":
            row |= trials[[*COST_PARTS, "ratio"]].median().to_dict()
        rows.append(row)
    return pd.DataFrame(rows or {"rung": [], "quantity": [], "n": []})


def _caption(results: LadderResults) -> str:
    numbers = trials_of_each(results.sweep, list(cost_table(results.sweep)["n"]) or [0])
    time = _OWN_TIME if has_own_time(results.sweep) else _RAY_TIME
    return f"{time} Bars show medians, and lines the range; {numbers}."


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
    caption=_caption,
    absent="no finished trial has its seconds or memory",
    position=70,
)
def draw_cost(results: LadderResults) -> Drawing | None:
    """Draw bars for the median seconds and memory of each rung, and lines for the range."""
    sweep = results.sweep
    table = cost_table(sweep)
    if table.empty:
        return None
    rungs = list(table["rung"].unique())
    shown = [name for name in PANELS if name in set(table["quantity"])]
    figure, axes = plt.subplots(
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
        lacking = ""
        if len(rows) < len(_OTHER):
            lacking = f", no {_OTHER[rows['quantity'].item()]}"
        labels.append(f"{sweep.labels[rung]} (n = {counts}{lacking})")
    axes[0, 0].set_yticks(range(len(rungs)), labels, fontsize=7)
    axes[0, 0].invert_yaxis()
    if "total_s" in shown:
        handles = [Patch(color=grey, label=COST_PARTS[part]) for part, grey in _GREYS.items()]
        style.legend_below(figure, handles, 2)
    return figure


def _draw_bars(axis: Axes, rows: pd.DataFrame, heights: list[int], quantity: str) -> None:
    """Draw the bars of the rungs that have the quantity, with their values behind them."""
    colors = list(map(style.color, rows["rung"]))
    bars = axis.barh(heights, rows["median"], height=0.7, color=colors)
    if quantity == "total_s":  # the rest of a bar is the trial's own time
        left = 0.0 * rows["median"]
        for part, grey in _GREYS.items():
            axis.barh(heights, rows[part], height=0.7, left=left, color=grey)
            left = left + rows[part]
    texts = []
    for height, row in zip(heights, rows.to_dict("records"), strict=True):
        median = Cell.measured(row["median"]).text
        lines = [row["label"], f"{PANELS[quantity]}: {median}"]
        if quantity == "total_s":
            for part, title in COST_PARTS.items():
                lines.append(f"{title}: {Cell.measured(row[part]).text} s")
        if row["n"] > 1:
            least, most = Cell.measured(row["least"]), Cell.measured(row["most"])
            lines.append(f"from {least.text} to {most.text}")
            axis.hlines(height, row["least"], row["most"], color="0.1", linewidth=1)
        texts.append("\n".join([*lines, format_count(row["n"], "trial")]))
        ratio = row.get("ratio", math.nan)
        of_plain = "" if math.isnan(ratio) else f" ({ratio:.2f} x)"
        axis.annotate(
            f"{median}{of_plain}", (row["most"], height), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    label_points(bars, texts)
    # Room for the numbers behind the bars.
    room = 1.75 if quantity == "total_s" else 1.35
    axis.set_xlim(0, room * rows["most"].max())
    axis.margins(y=0.02)
    axis.tick_params(labelsize=7)
