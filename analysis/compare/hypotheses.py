"""Tests of hypotheses over matched blocks: paired tests against a baseline, and Friedman's."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.compare import intervals
from analysis.compare.gather import Matched
from analysis.text import minus
from analysis.tidy import tied
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import is_never_best
from tune_calib.text import format_count, nearest

PAIRED_TESTS = ("wilcoxon", "t")
MIN_PAIRS = 3
MIN_BLOCKS = 5
UNITS = {"fraction": " points", "nats": " nats", "score": ""}
"""Units of differences in sentences, by the unit of the metric."""


def compare(matched: Matched, baseline: str, test: str) -> pd.DataFrame:
    """Test each method against a baseline, two-sided; p_holm is over the rows with a p."""
    methods = list(map(str, matched.values))
    if baseline not in methods:
        raise UserError(f"no method {baseline!r} in these results{nearest(baseline, methods)}")
    if len(methods) < 2:
        raise UserError(f"{baseline!r} is the only method; a test needs at least two")
    rows = []
    for method in matched.values.columns.drop(baseline):
        pairs = matched.values[[method, baseline]].dropna()
        row = compare_pairs(matched.metric, pairs, test)
        if matched.why_no_test:
            row |= {"low": np.nan, "high": np.nan, "p": np.nan, "statement": matched.why_no_test}
        rows.append({"method": str(method)} | row)
    table = pd.DataFrame(rows)
    table.insert(len(table.columns) - 1, "p_holm", holm(table["p"]))
    return table


def holm(p: Iterable[float]) -> intervals.Floats:
    corrected = np.array(list(p), dtype=np.float64)
    is_tested = ~np.isnan(corrected)
    if is_tested.sum() > 1:  # the function collects garbage, which takes a tenth of a second
        corrected[is_tested] = multipletests(corrected[is_tested], method="holm")[1]
    return corrected


def compare_pairs(metric: str, pairs: pd.DataFrame, test: str) -> dict[str, Any]:
    """Test the first of two columns of pairs against the second.

    Returns the numbers of pairs and of better ones, the difference (the mean for ``t``, Hodges and
    Lehmann's estimate for ``wilcoxon``), low and high (the 95 % interval, without 0 exactly if
    p < ``ALPHA``), p, and the statement why there is no p.
    """
    difference = tied(pairs.iloc[:, 0] - pairs.iloc[:, 1]).to_numpy()
    sign = -1 if METRICS[metric].is_less_better else 1
    statement = _explain_no_test(difference, test)
    p = low = high = estimate = np.nan
    if not statement and test == "t":
        p = float(stats.ttest_1samp(difference, 0.0).pvalue)
        low, high = intervals.t_interval(difference)
    elif not statement:
        # Without zeros, SciPy permutes the signed ranks if few of them tie.
        is_small = len(difference) <= intervals.MOST_EXACT
        method = "exact" if is_small and intervals.is_exact(difference) else "auto"
        p = float(stats.wilcoxon(difference[difference != 0], method=method).pvalue)
        low, high = intervals.signed_rank_interval(difference)
    if test == "wilcoxon":
        estimate = intervals.hodges_lehmann(difference)
    elif len(difference):
        estimate = float(difference.mean())
    better = int((sign * difference > 0).sum())
    numbers = {"pairs": len(pairs), "better": better, "difference": estimate}
    return {**numbers, "low": low, "high": high, "p": p, "statement": statement}


def describe_change(metric: str, change: intervals.Floats, base: str) -> str:
    mean = format_change(metric, change.mean())
    size = f"a change of {mean}{UNITS[METRICS[metric].unit]} from {base}"
    if len(change) < 2:
        return f"{size}, without an interval, since only one seed is matched"
    seeds = format_count(len(change), "matched seed")
    if np.ptp(change) == 0:
        return f"{size}, the same for {seeds}"
    low, high = (format_change(metric, end) for end in intervals.t_interval(change))
    interval = f"95 % interval {low} to {high} over {seeds}, not adjusted for this choice"
    return f"{size} ({interval})"


def format_change(metric: str, value: float) -> str:
    return minus(METRICS[metric].format(value, signed=True))


def _explain_no_test(difference: intervals.Floats, test: str) -> str:
    """Explain why a paired test of these differences is meaningless; empty if it is not."""
    n, moved = len(difference), int((difference != 0).sum())
    if n == 0:
        return "no pairs: no block has a number for both"
    if moved == 0:
        return f"all {n} pairs are equal"
    # Two-sided: two of the 2**moved equally likely combinations of signs have equal signs.
    least = 2.0 ** (1 - moved)
    if test == "wilcoxon" and least > intervals.ALPHA:
        return f"too few pairs that differ ({moved}): Wilcoxon's smallest p is {least:.2g}"
    if n < MIN_PAIRS:
        return f"too few pairs ({n}) for a t test, which needs at least {MIN_PAIRS}"
    if test == "t" and np.ptp(difference) == 0:
        return f"all {n} differences are equal, so there is no spread to test against"
    return ""


def describe_blocks(blocks: int, methods: int) -> str:
    comparisons = methods - 1
    # The least numbers of pairs with which Wilcoxon's test can be significant.
    alone, corrected = (
        1 + math.ceil(math.log2(number / intervals.ALPHA)) for number in (1, max(comparisons, 1))
    )
    holm = ""
    if corrected > alone:
        holm = f" ({corrected} with Holm's correction over {comparisons} methods)"
    return (
        f"this plan has {format_count(blocks, 'block')}; Wilcoxon's test needs at least "
        f"{alone}{holm}, Friedman's {MIN_BLOCKS}, a decision over networks {MIN_PAIRS}"
    )


@dataclass(frozen=True, eq=False)
class Friedman:
    """Friedman's test of no difference between methods, and Nemenyi's test of each pair."""

    metric: str
    unit: str  # description of a block
    blocks: int  # number of complete blocks; the others are left out
    ranks: "pd.Series[float]"  # mean rank of each method, ties at their mean rank, best is 1
    statement: str  # the reason for having no p, otherwise empty
    notes: tuple[str, ...]  # methods and blocks left out
    statistic: float = np.nan  # chi-square; this and p are NaN if there is a statement
    p: float = np.nan
    critical_difference: float = np.nan  # mean ranks further apart than this differ at ``ALPHA``
    nemenyi: pd.DataFrame | None = None  # p of each pair, both ways, if Friedman's p is small


def friedman(matched: Matched) -> Friedman:
    """Run Friedman's and Nemenyi's tests on complete blocks, leaving out those never best."""
    never_best = [method for method, cells in matched.flags.items() if is_never_best(cells)]
    # Methods are dropped before blocks, since one without numbers would leave no block complete.
    values = matched.values.drop(columns=never_best).dropna(axis="columns", how="all")
    complete = tied(values.dropna())
    if not len(values.columns):  # without any method every block would count as complete
        complete = complete.iloc[:0]
    notes = list(matched.notes)
    absent = [str(method) for method in matched.values if method not in (*values, *never_best)]
    if absent:
        notes.append(f"left out, without any number: {', '.join(absent)}")
    if never_best:
        notes.append(f"left out, at chance or a trivial control: {', '.join(never_best)}")
    if lost := len(values.dropna(how="all")) - len(complete):
        notes.append(f"{lost} blocks left out, since a method has no number there")
    is_less_better = METRICS[matched.metric].is_less_better
    ranks = complete.rank(axis="columns", ascending=is_less_better)
    means, why = ranks.mean(), matched.why_no_test or _explain_no_ranks(ranks)
    result = Friedman(
        matched.metric, matched.unit, len(complete), ranks=means, statement=why, notes=tuple(notes)
    )
    if why:
        return result
    # Both tests rank the values themselves, in either direction.
    statistic, p = map(float, stats.friedmanchisquare(*complete.to_numpy().T))
    # Demsar (2006): the studentised range with infinite degrees of freedom, over sqrt 2.
    blocks, methods = complete.shape
    quantile = stats.studentized_range.ppf(1 - intervals.ALPHA, methods, np.inf) / np.sqrt(2)
    critical = float(quantile * np.sqrt(methods * (methods + 1) / (6 * blocks)))
    result = replace(result, statistic=statistic, p=p, critical_difference=critical)
    # Pairs are only tested after a significant result.
    if p < intervals.ALPHA:
        import scikit_posthocs  # here, since it takes half a second and few reports need it

        result = replace(result, nemenyi=scikit_posthocs.posthoc_nemenyi_friedman(complete))
    return result


def _explain_no_ranks(ranks: pd.DataFrame) -> str:
    blocks, methods = ranks.shape
    if blocks == 0:
        return "no block has a number for every method"
    if methods < 3:
        return f"Friedman's test needs three methods, not {methods}; use wilcoxon or t"
    if blocks < MIN_BLOCKS:
        return f"too few blocks ({blocks}) for Friedman's test, which needs at least {MIN_BLOCKS}"
    if (ranks.nunique(axis="columns") == 1).all():
        return "all methods tie in every block"
    return ""
