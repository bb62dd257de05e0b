"""Intervals over the test samples, as the bootstrap of each trial gave them, of every rung."""

import math

import pandas as pd

from analysis.load import Sweep
from analysis.text import NOTHING, Cell, rounded
from tune_calib.spec.metrics import AT_VALUE, METRICS


def ends(sweep: Sweep, rung: int, metric: str) -> tuple[float, float]:
    """Means over the trials of a rung of the ends of their intervals; NaN if one has none."""
    hashes = sweep.of_rung(rung)["spec_hash"]
    wanted = pd.MultiIndex.from_product([hashes, [metric]])
    found = sweep.intervals.reindex(wanted)[["lower", "upper"]]
    # A mean over some of the trials would stand beside one over all of them.
    low, high = found.mean(skipna=False)
    return float(low), float(high)


def cell(sweep: Sweep, rung: int, metric: str, mean: float) -> Cell:
    """The cell of a mean and its interval, e.g. ``1.20 [0.80, 1.43]``."""
    if math.isnan(mean):
        return NOTHING
    low, high = ends(sweep, rung, metric)
    text = METRICS[metric].format(mean)
    if not math.isnan(low):
        text += f" [{METRICS[metric].format(low)}, {METRICS[metric].format(high)}]"
    return Cell(text, rounded(metric, mean))


def note(sweep: Sweep) -> str:
    """What the brackets are, without a full stop."""
    draws = sorted(set(sweep.intervals["resamples"]))
    drawn = " or ".join(map(str, draws))
    return (
        f"Brackets: 95 % intervals over the test samples ({drawn} bootstrap draws), the trained "
        "classifiers as they are; means of their ends over the trials of a rung. Of ECE and other "
        f"distances they take off what chance adds. {AT_VALUE}"
    )
