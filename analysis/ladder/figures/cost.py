"""The cost of a sweep: seconds and memory of the trials of each rung."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.cost import PARTS, costs, has_own_time
from analysis.ladder.means import trials_of_each
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from analysis.svg import label_points
from analysis.text import measured_cell
from tune_calib.text import format_count

PANELS = {
    "seconds": "own time\nof a trial (s)",
    "total_s": "with its network\nand bank (s)",
    "memory_mib": "peak memory\n(MiB)",
}
_OTHER = {"seconds": "memory", "memory_mib": "time"}  # what a rung with one of them lacks
_BENEATH = {"network_s": "0.8", "bank_s": "0.55"}  # greys

_OWN_TIME = (
    "Time of training and evaluation, without setting up: of a head its share of those that were "
    "trained together, of a post-hoc method the fit and the evaluation."
)
_RAY_TIME = (
    "These results are older than the record of a trial's own time: that of its Ray trial is "
    "shown, with setting up and warming up, for heads over how many were trained together. A "
    "post-hoc method has none, for its Ray trial trained the network."
)


def cost_table(sweep: Sweep) -> pd.DataFrame:
    """Return median, least and most of each quantity of ``PANELS`` for every measured rung."""
    measured = costs(sweep)
    rows = []
    for index, label in sweep.labels.items():
        own = measured[measured["rung"] == index]
        for quantity in PANELS:
            values = own[quantity].dropna()
            key = {"rung": index, "label": label, "quantity": quantity}
            numbers = {"median": values.median(), "least": values.min(), "most": values.max()}
            of_total = [*PARTS, "ratio"] if quantity == "total_s" else []
            parts = {name: own.loc[values.index, name].median() for name in of_total}
            rows.append({**key, "n": len(values), **numbers, **parts})
    table = pd.DataFrame(rows)
    return table[table["n"] > 0].reset_index(drop=True)


def draw_cost(results: LadderResults) -> Drawing | None:
    """Draw bars of the median seconds and memory of each rung, lines from the least to the most."""
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
        own = table[table["quantity"] == quantity].set_index("rung")
        _bars(axis, own.set_axis([rungs.index(rung) for rung in own.index]), rungs, quantity)
        axis.set_xlabel(PANELS[quantity], fontsize=7.5)
    labels = [f"{sweep.labels[rung]} ({_count(table[table['rung'] == rung])})" for rung in rungs]
    axes[0, 0].set_yticks(range(len(rungs)), labels, fontsize=7)
    axes[0, 0].invert_yaxis()
    if "total_s" in shown:
        handles = [Patch(color=grey, label=PARTS[part]) for part, grey in _BENEATH.items()]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=7
        )
    return figure


def _count(rows: pd.DataFrame) -> str:
    """Return how many trials of a rung were measured; both numbers where they are not the same."""
    rows = rows[rows["quantity"].isin(list(_OTHER))]
    counts = dict.fromkeys(str(n) for n in rows["n"])
    is_partial = len(rows) < len(_OTHER)
    told = f"n = {' and '.join(counts)}"
    return told + (f", no {_OTHER[rows['quantity'].item()]}" if is_partial else "")


def _describe_bar(row: Mapping[Hashable, Any], quantity: str) -> str:
    median, least, most = (measured_cell(row[n]).text for n in ("median", "least", "most"))
    span = f"\nfrom {least} to {most}" if row["n"] > 1 else ""
    apart = "".join(
        f"\n{title}: {measured_cell(row[part]).text} s" for part, title in PARTS.items()
    )
    apart = apart if quantity == "total_s" else ""
    trials = format_count(row["n"], "trial")
    return f"{row['label']}\n{PANELS[quantity]}: {median}{apart}{span}\n{trials}"


def _bars(axis: Axes, rows: pd.DataFrame, rungs: list[int], quantity: str) -> None:
    """Draw bars of the rungs that have the quantity, at their heights, which are the index."""
    heights = rows.index.to_numpy()
    bars = axis.barh(
        heights, rows["median"], height=0.7, color=[style.color(int(rungs[h])) for h in heights]
    )
    label_points(bars, [_describe_bar(row, quantity) for row in rows.to_dict("records")])
    if quantity == "total_s":  # over the bar, from its left: what is left of it is the trial's own
        left = 0.0 * rows["median"]
        for part, grey in _BENEATH.items():
            axis.barh(heights, rows[part], height=0.7, left=left, color=grey)
            left = left + rows[part]
    several = (rows["n"] > 1).to_numpy()
    axis.hlines(
        heights[several], rows["least"][several], rows["most"][several], color="0.1", linewidth=1
    )
    for height, row in rows.iterrows():
        ratio = row.get("ratio", math.nan) if quantity == "total_s" else math.nan
        of_plain = "" if math.isnan(ratio) else f" ({ratio:.2f} x)"
        axis.annotate(
            f"{measured_cell(row['median']).text}{of_plain}", (row["most"], height), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    # Room for the numbers behind the bars.
    if len(rows):
        axis.set_xlim(0, (1.75 if quantity == "total_s" else 1.35) * rows["most"].max())
    axis.margins(y=0.02)
    axis.tick_params(labelsize=7)


def _caption(results: LadderResults) -> str:
    numbers = trials_of_each(list(cost_table(results.sweep)["n"]) or [0])
    time = _OWN_TIME if has_own_time(results.sweep) else _RAY_TIME
    return f"{time} Medians, and lines from the least to the most; {numbers}."


LADDER_FIGURES.register(
    Figure(
        name="cost",
        title="Cost of the trials",
        reading=(
            "Memory is the peak of the process, which may have run other trials before. The second "
            "panel adds the network and feature bank of a head, or the network of a post-hoc "
            "method, each in full though many trials may share it; in brackets, the ratio to plain "
            "training. Times are comparable only if one idle machine took them all."
        ),
        draw=draw_cost,
        caption=_caption,
        absent="no trial that is done has its seconds or memory",
        position=70,
    )
)
