"""The reliability diagram of a calibration report."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.stats import binom

_REACHED, _GAP = (0.34, 0.71, 0.91), (0.84, 0.37, 0.0)  # told apart by colour-blind readers too
_LEVEL = 0.95


def draw_diagram(bins: pd.DataFrame, heading: str) -> Figure:
    """Draw accuracy against confidence above, and the share of samples in each bin below.

    A vertical line marks how far the accuracy of a bin lies from its confidence by chance alone in
    a calibrated classifier: the middle 95 % of a binomial distribution. ``bins`` has one row a bin:
    lower, upper, count, confidence and accuracy, fractions. pyplot does not keep the figure.
    """
    filled = bins[bins["count"] > 0]
    left, width = filled["lower"], filled["upper"] - filled["lower"]
    share = 100 * filled["count"] / filled["count"].sum()
    figure = Figure(figsize=(3.4, 4.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.1])
    box = {"align": "edge", "linewidth": 0.5}
    upper.bar(left, filled["accuracy"], width, color=_REACHED, edgecolor="white", **box)
    gap = filled["confidence"] - filled["accuracy"]
    upper.bar(
        left, gap, width, filled["accuracy"], color="none", edgecolor=_GAP, hatch="////", **box
    )
    # Rounding may take a mean confidence past 1.
    chance = binom(filled["count"], filled["confidence"].clip(0, 1))
    ends = [chance.ppf(level) / filled["count"] for level in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)]
    upper.vlines(left + width / 2, *ends, color="0.1", linewidth=1)
    upper.plot([0, 1], [0, 1], color="0.1", linewidth=0.8, linestyle="--")
    upper.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    upper.set_title(heading, fontsize=7)
    upper.set_ylabel("accuracy", fontsize=7)
    # Rare bins make the widest gaps above: on a linear scale nobody would see that they are rare.
    lower.bar(left, share, width, color="0.45", edgecolor="white", **box)
    lower.set_yscale("log")
    lower.set(ylim=(10 ** np.floor(np.log10(share.min() / 2)), 100), xticks=[0, 0.5, 1])
    lower.yaxis.set_major_formatter("{x:g}")
    lower.minorticks_off()
    lower.set_xlabel("confidence", fontsize=7)
    lower.set_ylabel("samples\n(%, log)", fontsize=7)
    for axis in (upper, lower):
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [
        Line2D([], [], color="0.1", linewidth=0.8, linestyle="--", label="calibrated"),
        Patch(color=_REACHED, label="accuracy of the bin"),
        Patch(facecolor="none", edgecolor=_GAP, hatch="////", label="gap to its mean confidence"),
        Line2D([], [], color="0.1", linestyle="none", marker="|", markersize=8,
               label=f"{100 * _LEVEL:.0f} % of chance"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=6)
    return figure
