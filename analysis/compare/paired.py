"""Paired tests of methods against a baseline, Wilcoxon's or Student's, over matched blocks."""

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.compare.blocks import Matched
from analysis.compare.intervals import (
    ALPHA,
    MOST_EXACT,
    Floats,
    hodges_lehmann,
    is_exact,
    signed_rank_interval,
    t_interval,
)
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.text import nearest

PAIRED_TESTS = ("wilcoxon", "t")
MIN_PAIRS = 3


def compare(matched: Matched, baseline: str, test: str) -> pd.DataFrame:
    """Test each method against a baseline, two-sided, on the blocks in which both have a number.

    Returns a row per method with pairs, better (pairs in which it beats the baseline), difference
    (method minus baseline: the mean for ``t``, Hodges and Lehmann's estimate for ``wilcoxon``),
    low and high (the 95 % interval of the same test: without 0 exactly where p < ``ALPHA``), p,
    p_holm (over the rows that have a p) and statement (why there is no p; else empty).
    """
    methods = [str(method) for method in matched.values]
    if baseline not in methods:
        raise UserError(f"no method {baseline!r} in these results{nearest(baseline, methods)}")
    if len(methods) < 2:
        raise UserError(f"{baseline!r} is the only method: there is nothing to compare it with")
    rows = [_comparison(matched, m, baseline, test) for m in methods if m != baseline]
    table = pd.DataFrame(rows).assign(p_holm=np.nan)
    # A comparison that was not tested must not make the others pay in Holm's correction.
    has_p = table["p"].notna()
    if has_p.any():
        table.loc[has_p, "p_holm"] = multipletests(table.loc[has_p, "p"], method="holm")[1]
    return table[
        ["method", "pairs", "better", "difference", "low", "high", "p", "p_holm", "statement"]
    ]


def _comparison(matched: Matched, method: str, baseline: str, test: str) -> dict[str, object]:
    pairs = matched.values[[method, baseline]].dropna()
    # Rounded, since ranks of differences must not be decided by the last bit of a float.
    difference = (pairs[method] - pairs[baseline]).round(12).to_numpy()
    sign = -1 if METRICS[matched.metric].is_less_better else 1
    statement = _too_little(difference, test)
    p = low = high = np.nan
    if not statement:
        p, low, high = _tested(difference, test)
    estimate = hodges_lehmann(difference) if test == "wilcoxon" else _mean(difference)
    return {
        "method": method,
        "pairs": len(pairs),
        "better": int((sign * difference > 0).sum()),
        "difference": estimate,
        "low": low,
        "high": high,
        "p": p,
        "statement": statement,
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else np.nan


def _tested(difference: Floats, test: str) -> tuple[float, float, float]:
    """Return p, and the interval that belongs to it."""
    if test == "t":
        return float(stats.ttest_1samp(difference, 0.0).pvalue), *t_interval(difference)
    # Without the zeros SciPy permutes the signed ranks where few of them tie.
    is_small = len(difference) <= MOST_EXACT
    method = "exact" if is_small and is_exact(difference) else "auto"
    p = float(stats.wilcoxon(difference[difference != 0], method=method).pvalue)
    return p, *signed_rank_interval(difference)


def _too_little(difference: Floats, test: str) -> str:
    """Explain why a paired test of these differences would say nothing; empty if it would."""
    n, moved = len(difference), int((difference != 0).sum())
    if n == 0:
        return "no pair: no block has a number of both"
    if moved == 0:
        return f"all {n} pairs are equal"
    # Two-sided: all signs alike, either way, of 2**moved ways that are equally likely.
    least = 2.0 ** (1 - moved)
    if test == "wilcoxon" and least > ALPHA:
        return f"too few pairs that differ ({moved}): Wilcoxon's smallest p is {least:.2g}"
    if n < MIN_PAIRS:
        return f"too few pairs ({n}) for a t test, which takes {MIN_PAIRS} at least"
    if test == "t" and np.ptp(difference) == 0:
        return f"all {n} differences are equal: no spread to test against"
    return ""
