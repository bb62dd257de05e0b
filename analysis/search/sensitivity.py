"""Sensitivity of a metric to settings, computed from ``SearchResults.table``."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd

from tune_calib.spec.metrics import METRICS

MARGINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_ROUNDING = 1e-9  # a suggestion exactly at the margin is within it
_LOG_FROM = 100  # ratio of largest to smallest value from which the scale of a setting is log
_WIDE_FROM = 5  # the same ratio for a metric


def is_numeric(values: "pd.Series[Any]") -> bool:
    """Return whether all values are numbers; Booleans do not count."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def is_wide(values: "pd.Series[float]") -> bool:
    """Return whether the values of a metric span a range that needs a logarithmic axis."""
    known = values.dropna()
    return bool(len(known) and known.min() > 0 and known.max() / known.min() >= _WIDE_FROM)


def trend(table: pd.DataFrame, setting: str, bins: int = 6) -> pd.DataFrame:
    """Return the median and quartiles in bins of one setting with equally many suggestions."""
    rows = table.dropna(subset=[setting, "mean"])
    values = rows[setting]
    if is_numeric(values):
        values = values.astype(float)
        # Equally many per bin: a sampler that learns tries some regions much more often.
        parts = pd.qcut(values, bins, duplicates="drop") if values.nunique() > bins else values
    else:
        parts = values.map(str)
    groups = rows.assign(value=values).groupby(parts, observed=True)
    found = groups["mean"].describe()[["50%", "25%", "75%", "count"]]
    found.columns = pd.Index(["median", "low", "high", "suggestions"])
    middles = groups["value"].median() if is_numeric(values) else found.index
    found.insert(0, "value", middles)
    return found.reset_index(drop=True)


def heat_map(
    table: pd.DataFrame,
    down: str,
    across: str,
    bins: int = 8,
    aggregate: Literal["mean", "count"] = "mean",
) -> pd.DataFrame:
    """Return the mean of a metric, or the number of suggestions, in bins of two settings."""
    rows = table.dropna(subset=[down, across])
    keys = rows.assign(**{name: _binned(rows[name], bins) for name in (down, across)})
    return keys.dropna(subset="mean").pivot_table(
        index=down, columns=across, values="mean", aggfunc=aggregate, observed=True
    )


def _binned(values: "pd.Series[Any]", bins: int) -> "pd.Series[Any]":
    """Return the centres of equal bins, on a log scale if the values span two decades."""
    if not is_numeric(values):
        return values.map(str)
    if values.nunique() <= bins:
        return values.astype(float)
    numbers = values.astype(float)
    is_log = numbers.min() > 0 and numbers.max() / numbers.min() >= _LOG_FROM
    parts = pd.cut(numbers.map(math.log10) if is_log else numbers, bins)
    middles = [float(f"{10**part.mid if is_log else part.mid:.2g}") for part in parts]
    return pd.Series(middles, index=values.index)


def distances(table: pd.DataFrame, metric: str = "ece") -> "pd.Series[float]":
    """Return how much worse each mean is than the best one; NaN without a mean."""
    sign = 1 if METRICS[metric].is_less_better else -1
    losses: pd.Series[float] = sign * table["mean"]
    return losses - losses.min()


def share_within(
    table: pd.DataFrame, metric: str = "ece", margins: Sequence[float] = MARGINS
) -> pd.DataFrame:
    """Return the share of all suggestions that are at most each margin worse than the best."""
    away = distances(table, metric)
    rows = pd.DataFrame({"margin": margins})
    rows["within"] = [int((away <= margin + _ROUNDING).sum()) for margin in margins]
    return rows.assign(of=len(table), share=rows["within"] / len(table))
