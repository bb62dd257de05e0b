"""How wrong one may be: the share of the suggestions within a distance of the best."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import draw_share
from analysis.search.load import SearchResults


def draw_shares(search: SearchResults) -> Drawing | None:
    """Draw the share of the suggestions within a distance of the best."""
    table = search.within_guard()
    if table["mean"].notna().sum() < 2:
        return None
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, 2.6))
    draw_share(axis, table, search.metrics[0])
    axis.set(ylabel="suggestions (%)")
    axis.set_title("")  # its caption says how many there are
    return figure


SEARCH_FIGURES.register(
    Figure(
        name="share",
        title="How wrong one may be",
        reading=(
            "Share of the suggestions within a distance of the best that keeps the guard; those "
            "beyond the guard or without a value count as far away."
        ),
        draw=draw_shares,
        caption=SearchResults.note,
        absent="fewer than two suggestions are within the guard",
        takes=("metric",),
        position=70,
    )
)
