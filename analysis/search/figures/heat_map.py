"""The metric over the two most important settings."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.axes import draw_heat_map
from analysis.search.load import SearchResults
from analysis.search.sensitivity import heat_map
from tune_calib.errors import UserError


def draw_pair(search: SearchResults) -> Drawing | None:
    """Draw a heat map of the metric over two settings, the most important ones unless chosen."""
    if len(search.only_settings) not in (0, 2):
        raise UserError(f"heat_map shows two settings, not {len(search.only_settings)}")
    table = search.table(search.metrics[0])
    pair = _pair(search, table)
    if pair is None:
        return None
    grid = heat_map(table, *pair, bins=6)
    counts = heat_map(table, *pair, bins=6, aggregate="count")
    figure, axis = plt.subplots(figsize=(style.TEXT_IN * 0.75, 3.2))
    draw_heat_map(axis, grid, search.metrics[0], search.defaults, counts)
    return figure


def _pair(search: SearchResults, table: pd.DataFrame) -> tuple[str, str] | None:
    """Return the two most important settings that have two values beside each other."""
    names = search.shown_settings()
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            both = table.dropna(subset=[one, other, "mean"])
            if both[one].nunique() > 1 and both[other].nunique() > 1:
                return other, one
    return None


SEARCH_FIGURES.register(
    Figure(
        name="heat_map",
        title="The metric over two settings",
        reading=(
            "Mean and number (n) of the suggestions in a cell; darkest: the worst mean; empty: not "
            "tried; framed: the method's defaults."
        ),
        draw=draw_pair,
        caption=SearchResults.note,
        absent="no two settings have two values each among the suggestions that are done",
        takes=("settings", "metric"),
        position=40,
    )
)
