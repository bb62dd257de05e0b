"""The metric over each of the most important settings."""

from functools import partial

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import draw_tried
from analysis.search.load import SearchResults
from analysis.search.marks import describe_rows


def draw_sensitivity(search: SearchResults) -> Drawing | None:
    """Draw the metric against each of the most important settings."""
    names = search.shown_settings()
    if not names:
        return None
    metric, table = search.metrics[0], search.table()
    across = min(3, len(names))
    down = -(-len(names) // across)
    size = (max(style.COLUMN_IN, style.TEXT_IN * across / 3), 2.1 * down + 0.5)
    figure, axes = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        default, is_log = search.defaults.get(name), search.is_log(name)
        published = {point[name] for point in search.published if name in point} - {default}
        draw_tried(
            axis,
            table,
            name,
            metric,
            default,
            is_log,
            search.chosen,
            sorted(published, key=str),
            partial(describe_rows, search),
        )
    for axis in axes[:, 1:].flat:
        axis.set_ylabel("")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.legend(
        handles=_keys(search), loc="outside lower center", ncols=min(2, across), frameon=False,
        fontsize=7,
    )  # fmt: skip
    return figure


def _keys(search: SearchResults) -> list[Line2D]:
    has_spread = bool(search.table()["sd"].notna().any())
    each = f"a suggestion, {search.seeds()}" + (" ± sd" if has_spread else "")
    return [
        Line2D([], [], color="0.55", marker="o", markersize=3, linestyle="none", label=each),
        Line2D([], [], color=style.color(0), marker="s", markersize=3.5,
               label="median and quartiles over the other settings"),
        Line2D([], [], color=style.color(3), marker="*", markersize=8, linestyle="none",
               label="chosen"),
        Line2D([], [], color=style.color(3), linestyle="--", label="the method's default"),
        Line2D([], [], color=style.color(3), linestyle=":", label="other published value"),
    ]  # fmt: skip


SEARCH_FIGURES.register(
    Figure(
        name="sensitivity",
        title="The metric over the most important settings",
        reading=(
            "The other settings differ from mark to mark. Squares: the median of parts with "
            "equally many suggestions, the band their quartiles."
        ),
        draw=draw_sensitivity,
        caption=SearchResults.note,
        absent="no setting has two values among the suggestions that are done",
        takes=("settings", "metric"),
        position=20,
    )
)
