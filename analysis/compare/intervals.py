"""Intervals that invert a test: each excludes 0 exactly if its test has p < ``ALPHA``.

Those of a trial over the test samples come from its bins. The ECE of a finite sample is biased
upwards: that of a calibrated network is above 0 by chance, and the more so the fewer samples there
are. Bootstrap intervals then miss the true value (for calibrated networks, the percentile and
bias-corrected intervals always and the basic one half the time) and may even miss the estimate. The
interval here inverts a test that accounts for chance: it contains the true ECEs with which the
observed one is compatible.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, special, stats

from analysis.load import Run, cached_per_run
from analysis.tidy import SEEDS

ALPHA = 0.05
DRAWS = 1000
LEVEL = 0.95
_STEPS = 2**15  # finer than the hundredths of a percent that tables print
_ENDS = {"low": "lower", "high": "upper"}  # names here and in the table ``intervals``
_COLUMNS = [
    "samples", "accuracy", "accuracy_low", "accuracy_high", "ece", "ece_low", "ece_high"
]  # fmt: skip

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

    The error over repetitions falls with their number, that over the samples does not; see
    ``p_of_both``. The interval of a single value is over the samples only.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    spread = float(values.std(ddof=1)) if n > 1 else 0.0
    return float(values.mean()), half_width(spread / math.sqrt(n), n - 1, error, alpha)


def half_width(spread: float, freedom: int, error: float, alpha: float = ALPHA) -> float:
    """Compute the size of a difference whose ``p_of_both`` is ``alpha``."""
    # Either part exceeds its share of this bound with a probability of alpha / 2.
    most = error * stats.norm.isf(alpha / 4)
    if spread:
        most += spread * stats.t.isf(alpha / 4, freedom)
    if not most > 0:  # equal values without an error, or NaN
        return float(most)
    half = optimize.brentq(
        lambda size: p_of_both(size, spread, freedom, error) - alpha, 0, most, xtol=1e-9 * most
    )
    return float(half)


def p_of_both(
    size: float | Floats, spread: float | Floats, freedom: int, error: float | Floats
) -> Floats:
    """Return the probability that chance over repetitions and samples reaches a difference.

    This is Behrens' and Fisher's two-sided p, ``P(|spread T + error Z| >= size)`` with Student's T
    and a normal Z, since the error over samples is known and that over repetitions is estimated by
    a few. At no ratio of the two does it reject equality too often (Robinson, Annals of Statistics
    1976), also at the small ``alpha`` of simultaneous tests, where Welch's and Satterthwaite's
    degrees of freedom and Cochran's mean of both quantiles do
    (``tests/analysis/compare/test_familywise.py``).

    Args:
        size: Absolute differences.
        spread: Estimated standard errors over repetitions; 0 without any.
        freedom: Degrees of freedom of ``spread``.
        error: Standard errors over the samples, not 0 where ``spread`` is.
    """
    ratios, weights = _variance_ratios(max(freedom, 1))
    scales = np.sqrt(np.square(spread)[..., None] / ratios + np.square(error)[..., None])
    p: Floats = 2 * special.ndtr(-np.asarray(size)[..., None] / scales) @ weights
    return p


@lru_cache(maxsize=16)
def _variance_ratios(freedom: int) -> tuple[Floats, Floats]:
    """Return ratios of an estimated variance to the true one, and their probabilities."""
    least, most = stats.chi2.ppf(1e-15, freedom), stats.chi2.isf(1e-15, freedom)
    squares = np.geomspace(least, most, 200)  # the trapezoidal rule is exact for smooth functions
    weights = squares * stats.chi2.pdf(squares, freedom)
    return squares / freedom, weights / weights.sum()


def hodges_lehmann(differences: Floats) -> float:
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
    sizes = np.abs(differences)
    return bool(sizes.all()) and len(np.unique(sizes)) == len(sizes)


def _pair_means(values: Floats) -> Floats:
    left, right = np.triu_indices(len(values))
    return np.sort((values[left] + values[right]) / 2)


@lru_cache(maxsize=4)  # most methods of a comparison have the same number of pairs
def _rank_sums(n: int) -> Floats:
    share: Floats = np.ones(1)
    for rank in range(1, n + 1):
        # A further rank has an even chance of being added to the sum.
        share = (np.pad(share, (0, rank)) + np.pad(share, (rank, 0))) / 2
    return share


def over_samples(run: Run) -> pd.DataFrame:
    """Compute 95 % intervals of finished trials on test, by bootstrap or else from their bins."""
    trials = run.done.set_index("spec_hash")
    bins = run.bins[(run.bins["split"] == "test") & run.bins["spec_hash"].isin(trials.index)]
    intervals = {}
    # An empty bin has no accuracy, and its NaN would make every sum NaN.
    for name, filled in bins[bins["count"] > 0].groupby("spec_hash", observed=True):
        counts = filled["count"].to_numpy(dtype=np.float64)
        accuracy, confidence = filled["accuracy"].to_numpy(), filled["confidence"].to_numpy()
        # Rounding recovers the number of correct samples from the accuracies of the bins.
        total, right = int(counts.sum()), round((counts * accuracy).sum())
        wilson = stats.binomtest(right, total).proportion_ci(LEVEL, method="wilson")
        ece = ece_interval(counts, accuracy, confidence)
        intervals[name] = (total, right / total, float(wilson.low), float(wilson.high), *ece)
    rows = trials.loc[trials.index.isin(intervals), ["rung", *SEEDS]]
    rows["rung"] = rows["rung"].map(run.labels)
    rows = rows.join(pd.DataFrame.from_dict(intervals, orient="index", columns=_COLUMNS))
    for metric, (end, column) in product(("accuracy", "ece"), _ENDS.items()):
        wanted = pd.MultiIndex.from_product([rows.index, [metric]])
        drawn = run.intervals[column].reindex(wanted).set_axis(rows.index)
        # The bins do not tell which samples belong together.
        if not run.has_groups:
            drawn = drawn.fillna(rows[f"{metric}_{end}"])
        rows[f"{metric}_{end}"] = drawn
    return rows.reset_index(drop=True)


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
    low = float((share * np.abs(gaps(least))).sum())
    high = float((share * np.abs(gaps(most))).sum())
    return observed, min(low, observed), max(high, observed)


def noise_floor(counts: Floats, confidence: Floats) -> float:
    """Compute the expected ECE of a calibrated classifier with these bins, a fraction.

    The number of correct predictions in a bin is then binomial, with the bin's n samples and mean
    confidence c. The floor is the sum over bins of its mean absolute deviation from n c, divided by
    the number of all samples. This deviation is 2 k (1 - c) P(k), where k is the smallest integer
    above n c (De Moivre's formula; Diaconis and Zabell, Statistical Science 1991).
    """
    n, c = counts[counts > 0], confidence[counts > 0]
    above = np.floor(n * c) + 1
    deviations = 2 * above * (1 - c) * stats.binom.pmf(above, n, c)
    return float(deviations.sum() / n.sum())


@cached_per_run
def noise_floors(run: Run) -> "pd.Series[float]":
    """Return the mean noise floor on test of each rung, by label; NaN without bins."""
    bins = run.bins[run.bins["split"] == "test"].astype({"spec_hash": str})
    floors = {}
    for name, rows in bins.groupby("spec_hash"):
        counts, confidence = rows["count"].to_numpy(float), rows["confidence"].to_numpy(float)
        floors[name] = noise_floor(counts, confidence)
    floors_of_trials = run.done["spec_hash"].map(floors).astype(float)
    means = floors_of_trials.groupby(run.done["rung"].map(run.labels)).mean()
    return means.reindex(list(run.labels.values()))


def _crossing(rising: Callable[[float], float], level: float) -> float:
    if rising(0.0) >= level:
        return 0.0
    return bisect_left(range(_STEPS), level, key=lambda step: rising(step / _STEPS)) / _STEPS
