"""How much each setting tells the best suggestions from the rest."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import SEARCH_FIGURES, Figure
from analysis.search.load import SearchResults
from tune_calib.spec.metrics import METRICS


def draw_importance(search: SearchResults) -> Drawing | None:
    """Draw the importance of each setting for each metric, in percent of all."""
    told = search.outcome.importance
    if not told.shares:
        return None
    # Horizontal bars are counted from below, and the most important one is to stand on top.
    shares = 100 * pd.DataFrame(told.shares).reindex(search.settings[::-1]).fillna(0)
    height = 0.22 * len(shares) * max(1, 0.7 * len(shares.columns)) + 0.9
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, height))
    width = 0.8 / len(shares.columns)
    for index, metric in enumerate(shares):
        heights = np.arange(len(shares)) + width * ((len(shares.columns) - 1) / 2 - index)
        bars = axis.barh(
            heights,
            shares[metric],
            width,
            color=style.color(index),
            label=METRICS[str(metric)].head,
        )
        axis.bar_label(bars, fmt="%.0f", padding=2, fontsize=6.5)
    axis.set_yticks(range(len(shares)), list(shares.index))
    axis.set(xlabel="importance (%)", xlim=(0, 1.1 * shares.max().max()))
    if len(shares.columns) > 1:
        axis.legend(frameon=False, fontsize=7)
    return figure


def _caption(search: SearchResults) -> str:
    importance = search.outcome.importance
    if not importance.shares:
        return search.note()
    return f"Compared are the best {importance.top} with all {importance.done} that are done."


SEARCH_FIGURES.register(
    Figure(
        name="importance",
        title="Importance of the settings",
        reading="How far the best suggestions are spread otherwise than all (PED-ANOVA).",
        draw=draw_importance,
        caption=_caption,
        absent=lambda search: search.outcome.importance.statement,
        position=30,
    )
)
