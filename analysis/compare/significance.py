"""Spread and tests over matched blocks. The caller declares the test; no data chooses one.

A block is what the compared values share: a seed, or a (data set, backbone) column. Where there are
too few blocks for a test to say anything, a statement stands in place of its p-value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import scikit_posthocs
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.compare.intervals import (
    ALPHA,
    Floats,
    hodges_lehmann,
    is_exact,
    signed_rank_interval,
    t_interval,
)
from analysis.compare.ranks import RankTable, name
from analysis.load import Sweep
from analysis.tidy import flags_of_methods, incomplete, tidy
from tune_calib.errors import UserError
from tune_calib.names import METRICS, is_chance, legend, signed
from tune_calib.registry import nearest

PAIRED_TESTS = ("wilcoxon", "t")
MIN_PAIRS = 3
MIN_BLOCKS = 5


@dataclass(frozen=True, eq=False)
class Matched:
    """Values of one metric in matched blocks.

    Attributes:
        metric: a name of ``names.METRICS``.
        unit: what a block is, in words.
        values: index block, columns method in the order of the sweep; fractions where the metric
            is one; NaN where a method has no number.
        fixed: methods of one trial, whose value stands in every block.
        notes: what is missing, a line each.
        flags: cells of the column ``flags`` of the trials of each method that has some.
    """

    metric: str
    unit: str
    values: pd.DataFrame
    fixed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    flags: Mapping[str, list[str]] = field(default_factory=dict)

    def label(self, method: str) -> str:
        """Name of a method with the signs of its flags, as a table prints it."""
        return signed(method, self.flags.get(method, []))

    def legend(self) -> list[str]:
        """What the signs mean."""
        return [f"{line}." for line in legend(c for own in self.flags.values() for c in own)]


@dataclass(frozen=True, eq=False)
class Friedman:
    """Friedman's test that no method differs, and Nemenyi's of each pair.

    Attributes:
        metric: a name of ``names.METRICS``.
        unit: what a block is, in words.
        blocks: complete blocks, which alone enter.
        ranks: mean rank of each method, ties at their mean place, best is 1.
        statistic: chi-square; NaN if there is a statement.
        p: NaN if there is a statement.
        nemenyi: p of each pair, methods both ways; None if p is not below ``ALPHA``, since then
            no pair is to be told apart.
        critical_difference: mean ranks further apart than this differ at ``ALPHA``.
        statement: why there is no p, in words; else empty.
        notes: what is left out, a line each.
    """

    metric: str
    unit: str
    blocks: int
    ranks: "pd.Series[float]"
    statistic: float
    p: float
    nemenyi: pd.DataFrame | None
    critical_difference: float
    statement: str
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a declared test says.

    Attributes:
        matched: the values.
        test: ``wilcoxon``, ``t`` or ``friedman``.
        baseline: what the methods are compared with; None for ``friedman``.
        described: as of ``describe``.
        comparisons: as of ``compare``; None for ``friedman``.
        friedman: None but for ``friedman``.
    """

    matched: Matched
    test: str
    baseline: str | None
    described: pd.DataFrame
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
    described = describe(matched)
    if test == "friedman":
        return Verdict(matched, test, None, described, friedman=friedman(matched))
    if baseline is None:
        raise UserError(f"--test {test} needs a --baseline, one of {', '.join(methods)}")
    comparisons = compare(matched, baseline, test)
    return Verdict(matched, test, baseline, described, comparisons=comparisons)


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


def over_seeds(sweep: Sweep, metric: str, split: str = "test") -> Matched:
    """Match the trials of a sweep by their seeds.

    Heads on one network are no independent repetitions of it, so with several networks a block is
    a network, its head seeds averaged. With one network a block is a head seed, and the number of
    the network's own head is the same in all of them.
    """
    rows = tidy(sweep, [metric], split)
    labels = [rung.label for rung in sweep.rungs]
    is_paired, networks = sweep.manifest.paired_seeds, len(sweep.manifest.network_seeds)
    is_by_network = is_paired or networks > 1 or rows["head_seed"].isna().all()
    block = "network_seed" if is_by_network else "head_seed"
    matching = rows.dropna(subset=block)
    values = matching.pivot_table(index=block, columns="method", values="value", dropna=False)
    values = values.reindex(columns=labels)
    if is_by_network:
        unit = "network seed" if is_paired else "network seed, head seeds averaged"
        missing = tuple(incomplete(sweep, metric))
        return Matched(metric, unit, values, notes=missing, flags=flags_of_methods(rows))
    own = rows[rows["head_seed"].isna()].dropna(subset="value").groupby("method")["value"].mean()
    notes = [f"{method} has one trial, which stands in every block" for method in own.index]
    return Matched(
        metric,
        "head seed on one network, which tells nothing of other networks",
        values.assign(**{str(method): value for method, value in own.items()}),
        fixed=tuple(map(str, own.index)),
        notes=(*notes, *incomplete(sweep, metric)),
        flags=flags_of_methods(rows),
    )


def over_columns(table: RankTable) -> Matched:
    """Match the methods of a rank table by its columns, seeds averaged."""
    values = table.values.T.set_axis([name(key) for key in table.values.columns.to_list()])
    unit = "(data set, backbone) column"
    return Matched(table.metric, unit, values, notes=table.notes, flags=table.flags)


def describe(matched: Matched) -> pd.DataFrame:
    """Mean and spread of each method over the blocks.

    Returns:
        Columns method, n, mean, sd (with n - 1; NaN below two), low and high (Student's 95 %
        interval of the mean, within the metric's bounds; NaN below ``MIN_PAIRS`` blocks).
    """
    bounds = METRICS[matched.metric].lower, METRICS[matched.metric].upper
    rows = []
    for method, column in matched.values.items():
        values = column.dropna().to_numpy()[: 1 if method in matched.fixed else None]
        ends = t_interval(values) if len(values) >= MIN_PAIRS else (np.nan, np.nan)
        low, high = np.clip(ends, *bounds)
        mean = values.mean() if len(values) else np.nan
        sd = values.std(ddof=1) if len(values) > 1 else np.nan
        rows.append(
            {"method": method, "n": len(values), "mean": mean, "sd": sd, "low": low, "high": high}
        )
    return pd.DataFrame(rows)


def compare(matched: Matched, baseline: str, test: str) -> pd.DataFrame:
    """Test each method against a baseline, two-sided, on the blocks in which both have a number.

    Args:
        matched: the values.
        baseline: a method.
        test: ``wilcoxon`` (signed rank; blocks without a difference are dropped) or ``t`` (paired).

    Returns:
        One row a method but the baseline: method, pairs, better (pairs in which it beats the
        baseline), difference (method minus baseline: of ``t`` the mean, of ``wilcoxon`` the
        estimate of Hodges and Lehmann), low and high (its 95 % interval, that of the same test:
        without 0 exactly where p < ``ALPHA``; NaN without a p, and of ``wilcoxon`` where
        differences are 0 or tie), p, p_holm (Holm over the rows that have a p) and statement (why
        there is no p; else empty).

    Raises:
        UserError: there is no such method, or nothing to compare it with.
    """
    methods = [str(method) for method in matched.values]
    if baseline not in methods:
        raise UserError(f"no method {baseline!r} in these results{nearest(baseline, methods)}")
    if len(methods) < 2:
        raise UserError(f"{baseline!r} is the only method: there is nothing to compare it with")
    rows = [_comparison(matched, m, baseline, test) for m in methods if m != baseline]
    table = pd.DataFrame(rows).assign(p_holm=np.nan)
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
    sign = -1 if METRICS[matched.metric].direction == "min" else 1
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
    """p, and the interval that belongs to it."""
    if test == "t":
        return float(stats.ttest_1samp(difference, 0.0).pvalue), *t_interval(difference)
    # Without the zeros SciPy permutes the signed ranks where few of them tie.
    method = "exact" if is_exact(difference) else "auto"
    p = float(stats.wilcoxon(difference[difference != 0], method=method).pvalue)
    return p, *signed_rank_interval(difference)


def _too_little(difference: Floats, test: str) -> str:
    """Why a paired test of these differences would say nothing; empty if it would."""
    n, moved = len(difference), int((difference != 0).sum())
    if n == 0:
        return "no pair: no block has a number of both"
    if moved == 0:
        return f"all {n} pairs are equal"
    least = 2.0 ** (1 - moved)
    if test == "wilcoxon" and least > ALPHA:
        return f"too few pairs that differ ({moved}): Wilcoxon's smallest p is {least:.2g}"
    if n < MIN_PAIRS:
        return f"too few pairs ({n}) for a t test, which takes {MIN_PAIRS} at least"
    if test == "t" and np.ptp(difference) == 0:
        return f"all {n} differences are equal: no spread to test against"
    return ""


def friedman(matched: Matched) -> Friedman:
    """Friedman's test over the complete blocks, then Nemenyi's.

    Methods without any number or at chance are left out first, then blocks in which one has none.
    """
    at_chance = [method for method, cells in matched.flags.items() if is_chance(cells)]
    values = matched.values.drop(columns=at_chance).dropna(axis="columns", how="all")
    absent = [str(method) for method in matched.values if method not in (*values, *at_chance)]
    complete = values.dropna()
    notes = list(matched.notes)
    notes += [f"left out, without any number: {', '.join(absent)}"] if absent else []
    notes += [f"left out, at chance: {', '.join(at_chance)}"] if at_chance else []
    lost = len(values.dropna(how="all")) - len(complete)
    notes += [f"{lost} blocks left out: not every method has a number"] if lost else []
    is_less_better = METRICS[matched.metric].direction == "min"
    places = complete.rank(axis="columns", ascending=is_less_better)
    blocks, methods = complete.shape
    statement = _too_little_to_rank(places)
    statistic = p = critical = np.nan
    nemenyi = None
    if not statement:
        statistic, p = map(float, stats.friedmanchisquare(*complete.to_numpy().T))
        quantile = stats.studentized_range.ppf(1 - ALPHA, methods, np.inf) / np.sqrt(2)
        critical = float(quantile * np.sqrt(methods * (methods + 1) / (6 * blocks)))
        nemenyi = scikit_posthocs.posthoc_nemenyi_friedman(complete) if p < ALPHA else None
    return Friedman(
        metric=matched.metric,
        unit=matched.unit,
        blocks=blocks,
        ranks=places.mean(),
        statistic=statistic,
        p=p,
        nemenyi=nemenyi,
        critical_difference=critical,
        statement=statement,
        notes=tuple(notes),
    )


def _too_little_to_rank(places: pd.DataFrame) -> str:
    blocks, methods = places.shape
    if blocks == 0:
        return "no block has a number of every method"
    if methods < 3:
        return f"Friedman's test takes three methods, here are {methods}: declare wilcoxon or t"
    if blocks < MIN_BLOCKS:
        return f"too few blocks ({blocks}) for Friedman's test, which takes {MIN_BLOCKS} at least"
    if (places.nunique(axis="columns") == 1).all():
        return "all methods tie in every block"
    return ""
