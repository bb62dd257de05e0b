"""Intervals of means and differences, and of trials over the test samples; noise floors."""

import math
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.load import Run, cached_per_run
from tune_calib.spec.metrics import column

ALPHA = 0.05

MOST_EXACT = 1000
"""Largest n for which the exact distribution of the signed ranks is computed, in n^3 steps."""

Floats = NDArray[np.float64]


def t_interval(values: Floats) -> tuple[float, float]:
    """Compute Student's ``1 - ALPHA`` interval of the mean; NaN if all values are equal."""
    n = len(values)
    # Checked by the range, since the sd of equal floats need not be exactly 0.
    if n < 2 or np.ptp(values) == 0:
        return np.nan, np.nan
    half = stats.t.ppf(1 - ALPHA / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean() - half), float(values.mean() + half)


def over_both(values: Floats, error: float, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the mean of repetitions that share their samples, and half the width of its interval.

    The variances over repetitions, as in Student's interval, and over the samples, which does not
    shrink with the number of repetitions, add up. The degrees of freedom are those of Welch and
    Satterthwaite. The interval of a single value is over the samples only.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    spread = float(values.std(ddof=1)) if n > 1 else 0.0
    return float(values.mean()), half_width(spread, n, error, alpha)


def half_width(spread: float, n: int, error: float, alpha: float = ALPHA) -> float:
    """Compute half the width of ``over_both``'s interval from the sd (ddof 1) of ``n`` values."""
    variance = spread**2 / n
    total = variance + error**2
    freedom = (n - 1) * (total / variance) ** 2 if variance else math.inf
    return float(stats.t.ppf(1 - alpha / 2, freedom)) * math.sqrt(total)


def hodges_lehmann(differences: Floats) -> float:
    """Compute the median of the pair means, with pairs of equal elements; NaN without values."""
    return float(np.median(_pair_means(differences))) if len(differences) else np.nan


def signed_rank_interval(differences: Floats) -> tuple[float, float]:
    """Compute the interval that inverts Wilcoxon's signed rank test, at ``1 - ALPHA`` or more.

    Its ends are pair means, chosen by the distribution of the signed ranks (Hollander, Wolfe and
    Chicken, Nonparametric Statistical Methods, 3.4): the exact one for up to ``MOST_EXACT`` values,
    otherwise its normal approximation. NaN with fewer than six values, which cannot reach this
    level, and with zeros or ties.
    """
    n = len(differences)
    count = n * (n + 1) // 2
    if n > MOST_EXACT:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        rejected = math.floor(count / 2 - stats.norm.ppf(1 - ALPHA / 2) * sd)
    else:
        # Twice, since the test is two-sided.
        below = 2 * np.cumsum(_rank_sums(n))
        rejected = int((below < ALPHA).sum())  # rank sums at each end
    if rejected == 0 or not is_exact(differences):
        return np.nan, np.nan
    means = _pair_means(differences)
    return float(means[rejected - 1]), float(means[-rejected])


def is_exact(differences: Floats) -> bool:
    """Return whether the null distribution of the signed ranks is exact: no zeros and no ties."""
    sizes = np.abs(differences)
    return bool(sizes.all()) and len(np.unique(sizes)) == len(sizes)


def _pair_means(values: Floats) -> Floats:
    left, right = np.triu_indices(len(values))
    return np.sort((values[left] + values[right]) / 2)


@lru_cache(maxsize=4)  # most methods of a comparison have the same number of pairs
def _rank_sums(n: int) -> Floats:
    """Compute the null distribution of the sum of positive ranks, from 0 to n (n + 1) / 2."""
    share: Floats = np.ones(1)
    for rank in range(1, n + 1):
        # A further rank has an even chance of being added to the sum.
        share = (np.pad(share, (0, rank)) + np.pad(share, (rank, 0))) / 2
    return share


def over_samples(run: Run) -> pd.DataFrame:
    """Return the bootstrap intervals of accuracy and ECE of the trials that have them."""
    drawn = run.intervals[["lower", "upper"]]
    bins = run.bins[run.bins["split"] == "test"]
    trials = run.done.set_index("spec_hash")
    rows = trials[["rung", "network_seed", "head_seed", "split_seed"]].copy()
    rows["rung"] = rows["rung"].map(run.labels)
    rows["samples"] = bins["count"].groupby(bins["spec_hash"].astype(str)).sum()
    for metric in ("accuracy", "ece"):
        ends = drawn[drawn.index.get_level_values("metric") == metric].droplevel("metric")
        rows[metric] = trials.get(column("test", metric))
        rows[f"{metric}_low"], rows[f"{metric}_high"] = ends["lower"], ends["upper"]
    return rows.dropna(subset=["accuracy_low", "ece_low"], how="all").reset_index(drop=True)


def noise_floor(counts: Floats, confidence: Floats) -> float:
    """Compute the expected ECE of a calibrated classifier with these bins, a fraction.

    The number of correct predictions in a bin is then binomial, with its n samples and mean
    confidence c. Its mean absolute deviation from n c is 2 k (1 - c) P(k), where k is the smallest
    integer above n c (De Moivre's formula; Diaconis and Zabell, Statistical Science 1991).
    """
    n, c = counts[counts > 0], confidence[counts > 0]
    above = np.floor(n * c) + 1
    deviations = 2 * above * (1 - c) * stats.binom.pmf(above, n, c)
    return float(deviations.sum() / n.sum())


@cached_per_run
def noise_floors(run: Run) -> "pd.Series[float]":
    bins = run.bins[run.bins["split"] == "test"].astype({"spec_hash": str})
    floors = {}
    for name, rows in bins.groupby("spec_hash"):
        counts, confidence = rows["count"].to_numpy(float), rows["confidence"].to_numpy(float)
        floors[name] = noise_floor(counts, confidence)
    floors_of_trials = run.done["spec_hash"].map(floors).astype(float)
    means = floors_of_trials.groupby(run.done["rung"].map(run.labels)).mean()
    return means.reindex(list(run.labels.values()))
