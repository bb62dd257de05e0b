"""Friedman's test that no method differs, then Nemenyi's of each pair."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from analysis.compare.blocks import Matched
from analysis.compare.intervals import ALPHA
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import is_chance

MIN_BLOCKS = 5


@dataclass(frozen=True, eq=False)
class Friedman:
    """Friedman's test that no method differs, and Nemenyi's of each pair."""

    metric: str
    unit: str  # what a block is, in words
    blocks: int  # complete ones, which alone enter
    ranks: "pd.Series[float]"  # mean rank of each method, ties at their mean rank, best is 1
    statistic: float  # chi-square; this and p are NaN if there is a statement
    p: float
    nemenyi: pd.DataFrame | None  # p of each pair, both ways; None if Friedman's p is no finding
    critical_difference: float  # mean ranks further apart than this differ at ``ALPHA``
    statement: str  # why there is no p; else empty
    notes: tuple[str, ...]  # what is left out


def friedman(matched: Matched) -> Friedman:
    """Run Friedman's test over the complete blocks, then Nemenyi's.

    Methods without any number or at chance are left out first, then blocks in which one has none.
    """
    at_chance = [method for method, cells in matched.flags.items() if is_chance(cells)]
    # Methods before blocks: a single one without numbers would leave no block complete.
    values = matched.values.drop(columns=at_chance).dropna(axis="columns", how="all")
    absent = [str(method) for method in matched.values if method not in (*values, *at_chance)]
    # Rounded as in paired tests: the last bit of a mean over head seeds must not break a tie.
    complete = values.dropna().round(12)
    if not len(values.columns):  # of no method at all every block would count as complete
        complete = complete.iloc[:0]
    notes = list(matched.notes)
    notes += [f"left out, without any number: {', '.join(absent)}"] if absent else []
    notes += [f"left out, at chance: {', '.join(at_chance)}"] if at_chance else []
    lost = len(values.dropna(how="all")) - len(complete)
    notes += [f"{lost} blocks left out: not every method has a number"] if lost else []
    is_less_better = METRICS[matched.metric].is_less_better
    ranks = complete.rank(axis="columns", ascending=is_less_better)
    blocks, methods = complete.shape
    statement = _too_little_to_rank(ranks)
    statistic = p = critical = np.nan
    nemenyi = None
    if not statement:
        # Of the values: both tests rank them, and which end is best changes no distance.
        statistic, p = map(float, stats.friedmanchisquare(*complete.to_numpy().T))
        # As Demsar (2006): the studentised range with infinite degrees of freedom, over sqrt 2.
        quantile = stats.studentized_range.ppf(1 - ALPHA, methods, np.inf) / np.sqrt(2)
        critical = float(quantile * np.sqrt(methods * (methods + 1) / (6 * blocks)))
        # After a test that finds nothing, pairs are not to be searched for a difference.
        nemenyi = _nemenyi(complete) if p < ALPHA else None
    return Friedman(
        metric=matched.metric,
        unit=matched.unit,
        blocks=blocks,
        ranks=ranks.mean(),
        statistic=statistic,
        p=p,
        nemenyi=nemenyi,
        critical_difference=critical,
        statement=statement,
        notes=tuple(notes),
    )


def _nemenyi(complete: pd.DataFrame) -> pd.DataFrame:
    import scikit_posthocs  # takes half a second, and most reports rank nothing

    found: pd.DataFrame = scikit_posthocs.posthoc_nemenyi_friedman(complete)
    return found


def _too_little_to_rank(ranks: pd.DataFrame) -> str:
    blocks, methods = ranks.shape
    if blocks == 0:
        return "no block has a number of every method"
    if methods < 3:
        return f"Friedman's test takes three methods, here are {methods}: declare wilcoxon or t"
    if blocks < MIN_BLOCKS:
        return f"too few blocks ({blocks}) for Friedman's test, which takes {MIN_BLOCKS} at least"
    if (ranks.nunique(axis="columns") == 1).all():
        return "all methods tie in every block"
    return ""
