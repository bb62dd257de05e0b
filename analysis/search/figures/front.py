"""Draw two metrics of every suggestion, and what no other one beats in both."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import is_wide
from analysis.search.load import SearchResults
from analysis.search.marks import caption, describe_rows, groups
from analysis.svg import label_points
from analysis.tidy import unbeaten
from tune_calib.spec.metrics import METRICS

_SHOWN_BEYOND = 0.05  # accuracy beyond the guard that is shown


def front(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return the rows that no other one beats; of equal ones the first."""
    return unbeaten(rows, metrics).drop_duplicates(metrics)


def draw_front(search: SearchResults) -> Drawing | None:
    """Draw two metrics of every suggestion, and those within the guard that no other beats in both.

    They are the first two that are searched for, or the only one and accuracy (or ECE).
    """
    spare = "ece" if search.metrics == ["accuracy"] else "accuracy"
    up, along = [*search.metrics, spare][:2]
    table = search.table(up)
    table = table.assign(**{up: table["mean"], along: search.table(along)["mean"]})
    if table["mean"].isna().all():
        return None
    scales = METRICS[along].scale, METRICS[up].scale
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.85, 3))
    # Within the guard alone: an ECE that was bought with accuracy is no compromise to choose from.
    best = front(table[table["is_within"]], [up, along])
    axis.plot(
        scales[0] * best[along], scales[1] * best[up], color="black", linewidth=1, marker="o",
        markersize=6, markerfacecolor="none", label=f"front within the guard ({len(best)})",
        zorder=3,
    )  # fmt: skip
    for rows, label, look in groups(search, table):
        (marks,) = axis.plot(scales[0] * rows[along], scales[1] * rows[up], label=label, **look)
        label_points(marks, describe_rows(search, rows))
    baseline = search.outcome.baseline
    if {up, along} <= baseline.keys():
        axis.plot(
            scales[0] * baseline[along], scales[1] * baseline[up], linestyle="none", marker="P",
            markersize=7, color="0.2", label="baseline, cross entropy",
        )  # fmt: skip
    if is_wide(table["mean"]):
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis)
    axis.set(xlabel=f"select {METRICS[along].head}", ylabel=f"select {METRICS[up].head}")
    if along == "accuracy":
        # What lost much accuracy would leave the rest on one line.
        least = search.outcome.baseline["accuracy"] - search.guard - _SHOWN_BEYOND
        if left_out := int((table[along] < least).sum()):
            axis.set_xlim(left=100 * least)
            axis.set_title(f"{left_out} left of the axis", fontsize=7, loc="left")
    figure.legend(loc="outside right center", frameon=False, fontsize=7)
    return figure


SEARCH_FIGURES.register(
    Figure(
        name="front",
        title="What no other suggestion beats in both metrics",
        reading=("The guard counts accuracy lost against the baseline of the same network."),
        draw=draw_front,
        caption=caption,
        absent="no suggestion is done",
        takes=("metric",),
        position=60,
    )
)
