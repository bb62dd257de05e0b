"""Spread and tests over matched blocks. The caller declares the test; no data chooses one.

Where there are too few blocks for a test to say anything, a statement stands in place of its
p-value.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.compare.blocks import Matched, over_seeds
from analysis.compare.friedman import Friedman, friedman
from analysis.compare.intervals import t_interval
from analysis.compare.paired import MIN_PAIRS, PAIRED_TESTS, compare
from analysis.load import Sweep
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a declared test says.

    Attributes:
        matched: the values.
        test: ``wilcoxon``, ``t`` or ``friedman``.
        baseline: what the methods are compared with; None for ``friedman``.
        spreads: as of ``spreads_of``.
        comparisons: as of ``compare``; None for ``friedman``.
        friedman: None but for ``friedman``.
    """

    matched: Matched
    test: str
    baseline: str | None
    spreads: pd.DataFrame
    comparisons: pd.DataFrame | None = None
    friedman: Friedman | None = None


def judge(matched: Matched, test: str, baseline: str | None = None) -> Verdict:
    """Carry a declared test out.

    Raises:
        UserError: there is no such test or method, a paired test has no baseline, or no numbers.
    """
    if test not in (*PAIRED_TESTS, "friedman"):
        raise UserError(f"unknown test {test!r}; known: {', '.join(PAIRED_TESTS)}, friedman")
    methods = [str(method) for method in matched.values]
    if matched.values.isna().all(axis=None):
        raise UserError(f"no {METRICS[matched.metric].title} in these results; is the split right?")
    spreads = spreads_of(matched)
    if test == "friedman":
        return Verdict(matched, test, None, spreads, friedman=friedman(matched))
    if baseline is None:
        raise UserError(f"--test {test} needs a --baseline, one of {', '.join(methods)}")
    comparisons = compare(matched, baseline, test)
    return Verdict(matched, test, baseline, spreads, comparisons=comparisons)


def are_rivals(sweep: Sweep) -> bool:
    """Whether methods stand side by side, and are no steps of a ladder."""
    return all(rung.kind in ("base", "variant") for rung in sweep.rungs)


def for_report(sweep: Sweep, test: str) -> list[Verdict]:
    """What the report of methods side by side says of ECE: the test against the base, Friedman's.

    Returns:
        Nothing for a ladder (its steps are not rivals), or if fewer than two methods have numbers.
    """
    if len(sweep.rungs) < 2 or not are_rivals(sweep):
        return []
    matched = over_seeds(sweep, "ece")
    if matched.values.notna().any().sum() < 2:
        return []
    return [judge(matched, test, sweep.rungs[0].label), judge(matched, "friedman")]


def spreads_of(matched: Matched) -> pd.DataFrame:
    """Mean and spread of each method over the blocks.

    Returns:
        Columns method, n, mean, sd (with n - 1; NaN below two), low and high (Student's 95 %
        interval of the mean, within the metric's bounds; NaN below ``MIN_PAIRS`` blocks).
    """
    bounds = METRICS[matched.metric].lower, METRICS[matched.metric].upper
    rows = []
    for method, column in matched.values.items():
        # One trial that stands in every block is n = 1: its copies would feign an sd of 0.
        values = column.dropna().to_numpy()[: 1 if method in matched.fixed else None]
        ends = t_interval(values) if len(values) >= MIN_PAIRS else (np.nan, np.nan)
        low, high = np.clip(ends, *bounds)
        mean = values.mean() if len(values) else np.nan
        sd = values.std(ddof=1) if len(values) > 1 else np.nan
        rows.append(
            {"method": method, "n": len(values), "mean": mean, "sd": sd, "low": low, "high": high}
        )
    return pd.DataFrame(rows)
