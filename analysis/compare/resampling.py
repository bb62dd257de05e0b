"""Intervals for the accuracy and ECE of a trial over the test samples, from its bins.

The ECE of a finite sample is biased upwards: that of a calibrated network is above 0 by chance, and
the more so the fewer samples there are. Bootstrap intervals then miss the true value (for
calibrated networks, the percentile and bias-corrected intervals always and the basic one half the
time) and may even miss the estimate. The interval here inverts a test that accounts for chance: it
contains the true ECEs with which the observed one is compatible.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.load import Sweep

DRAWS = 1000
LEVEL = 0.95
# 2**-15 is finer than the hundredths of a percent that tables print.
_HALVINGS = 15
_ENDS = {"low": "lower", "high": "upper"}  # names here and in the table ``intervals``

_COLUMNS = [
    "samples", "accuracy", "accuracy_low", "accuracy_high", "ece", "ece_low", "ece_high"
]  # fmt: skip

Floats = NDArray[np.float64]


def over_samples(sweep: Sweep) -> pd.DataFrame:
    """Compute 95 % intervals of finished trials on test, by bootstrap or else from their bins."""
    trials = sweep.done.set_index("spec_hash")
    bins = sweep.bins[(sweep.bins["split"] == "test") & sweep.bins["spec_hash"].isin(trials.index)]
    found = {name: _intervals(own) for name, own in bins.groupby("spec_hash", observed=True)}
    rows = trials.loc[trials.index.isin(found), ["rung", "network_seed", "head_seed"]]
    rows["rung"] = rows["rung"].map(sweep.labels)
    rows = rows.join(pd.DataFrame(list(found.values()), index=list(found), columns=_COLUMNS))
    for metric, (end, column) in product(("accuracy", "ece"), _ENDS.items()):
        wanted = pd.MultiIndex.from_product([rows.index, [metric]])
        drawn = sweep.intervals[column].reindex(wanted).set_axis(rows.index)
        rows[f"{metric}_{end}"] = drawn.fillna(rows[f"{metric}_{end}"])
    return rows.reset_index(drop=True)


def _intervals(bins: pd.DataFrame) -> tuple[float, ...]:
    """Return the values of ``_COLUMNS``."""
    # An empty bin has no accuracy, and its NaN would make every sum NaN.
    filled = bins[bins["count"] > 0]
    counts = filled["count"].to_numpy(dtype=np.float64)
    accuracy, confidence = (filled[name].to_numpy() for name in ("accuracy", "confidence"))
    # Rounding recovers the number of correct samples from the accuracies of the bins.
    total, right = int(counts.sum()), round((counts * accuracy).sum())
    wilson = stats.binomtest(right, total).proportion_ci(LEVEL, method="wilson")
    of_ece = ece_interval(counts, accuracy, confidence)
    return total, right / total, float(wilson.low), float(wilson.high), *of_ece


def ece_interval(
    counts: Floats, accuracy: Floats, confidence: Floats
) -> tuple[float, float, float]:
    """Compute the ECE of a sample and a 95 % interval for the true ECE, from the non-empty bins.

    Consider networks whose accuracy differs from confidence by t in every bin, as far as possible
    and in the direction of the sample. The interval contains the true ECEs of those t for which the
    observed ECE is in the middle 95 % over samples of this size, and the observed ECE.
    """
    total = counts.sum()
    share = counts / total
    off = (share * (confidence - accuracy)).sum()
    observed = float(np.abs(share * (confidence - accuracy)).sum())
    # The bisection needs quantiles that rise with t, so every t has the same draws. The fixed seed
    # makes reports reproducible.
    chance = np.random.default_rng(0).standard_normal((DRAWS, len(counts)))

    def gaps(t: float) -> Floats:
        gap: Floats = confidence - np.clip(confidence - np.copysign(t, off), 0, 1)
        return gap

    def quantile(t: float, level: float) -> float:
        gap = gaps(t)
        right = confidence - gap
        # Both the correctness of samples and the number of samples in a bin vary.
        variance = share * (right * (1 - right) + (1 - share) * gap**2) / total
        shown = np.abs(share * gap + np.sqrt(variance) * chance).sum(1)
        return float(np.quantile(shown, level))

    tail = (1 - LEVEL) / 2
    least = _crossing(lambda t: quantile(t, 1 - tail), observed)
    most = _crossing(lambda t: quantile(t, tail), observed)
    low, high = (float((share * np.abs(gaps(t))).sum()) for t in (least, most))
    return observed, min(low, observed), max(high, observed)


def _crossing(rising: Callable[[float], float], level: float) -> float:
    """Return the point in [0, 1] where a rising function reaches a level, or the closest end."""
    low, high = 0.0, 1.0
    if rising(low) >= level:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return high
