"""Whether results hold what a paper claims: paired differences over seeds and over test samples.

A difference is uncertain for two reasons. Training: its spread over the seeds, whose share of the
variance falls with their number. The test samples, which all seeds share: the spread of the mean
difference over bootstrap draws of them, the same draws for both rungs. The variances add up.
What is no metric is not of the test samples: it is judged over seeds alone.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from analysis.compare.blocks import Matched, over_seeds
from analysis.compare.intervals import ALPHA, Floats, half_width, over_both
from analysis.compare.paired import MIN_PAIRS
from analysis.load import Sweep
from analysis.tidy import parted, tidy
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Claim

Outcome = Literal["held", "not held", "not decided", "no verdict"]

_MANY = 10_000


@dataclass(frozen=True)
class Verdict:
    """What results say to a claim.

    Attributes:
        claim: the claim.
        outcome: ``no verdict``: the base network is not in the paper's regime.
        than: of the rungs that ``claim.rung`` is compared with, the one that decides least; empty
            where it is compared with a number.
        difference: ``claim.rung`` less it, mean over the pairs; NaN where there is none.
        low: lower end of its 95 % interval, over seeds and test samples (of what is no metric over
            seeds alone); NaN where there is none.
        high: upper end.
        pairs: matched seeds.
        seeds: that a decision would take, if difference and spread stayed as they are; None where
            it is made, or where no number of seeds (up to 10,000) would make it or it is not known.
        why: there is none; empty where there is one.
    """

    claim: Claim
    outcome: Outcome
    than: str
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    pairs: int = 0
    seeds: int | None = None
    why: str = ""


def judge(sweep: Sweep, claim: Claim) -> Verdict:
    """Judge one claim by a sweep, over its seeds.

    Args:
        sweep: whose labels the claim names; what is no metric stands in its trials as
            ``test/NAME``.
        claim: the claim.
    """
    return judge_networks([sweep], claim)


def judge_networks(sweeps: Sequence[Sweep], claim: Claim) -> Verdict:
    """Judge one claim by sweeps on the same samples: over seeds, or over several networks.

    A claim of several comparisons is held where each is, at 95 % each, which needs no correction
    for their number where all must hold. It is not held where one is not, at 95 % of all: chance
    has several occasions there, and Bonferroni's level is for each of them.
    """
    each = [_against(sweeps, claim, than) for than in claim.than or ("",)]
    for outcome in ("not held", "not decided", "no verdict"):
        found = [verdict for verdict in each if verdict.outcome == outcome]
        if found:
            # Nobody can say how many seeds all take, if nobody can of one.
            return max(found, key=lambda v: math.inf if v.seeds is None else v.seeds)
    return min(each, key=lambda verdict: abs(verdict.difference))


@dataclass(frozen=True)
class _Changes:
    """Differences of two rungs, or of one from a number.

    Attributes:
        values: a pair each.
        error: standard error of their mean over the test samples.
        is_one: they are one trial each, which stands in every pair.
        withheld: why there is no verdict; empty if there may be one.
        why: there are none; empty where there are.
    """

    values: Floats
    error: float = math.nan
    is_one: bool = False
    withheld: str = ""
    why: str = ""

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self.values) else math.nan


def _against(sweeps: Sequence[Sweep], claim: Claim, than: str) -> Verdict:
    parts = [_changes(sweep, claim, than) for sweep in sweeps]
    changes = parts[0] if len(parts) == 1 else _of_networks(parts)
    change, error, mean = changes.values, changes.error, changes.mean
    none = Verdict(claim, "not decided", than, mean, pairs=len(change))
    if changes.withheld:
        return replace(none, outcome="no verdict", why=changes.withheld)
    if changes.why:
        return replace(none, why=changes.why)
    gain = _gain(claim, mean)
    needed = _needed(change, error, gain)
    if len(change) < MIN_PAIRS and not changes.is_one:
        why = f"{len(change)} of at least {MIN_PAIRS} seeds"
        return replace(none, seeds=needed or MIN_PAIRS, why=why)
    _, half = over_both(change, error)
    found = replace(none, low=mean - half, high=mean + half)
    if gain > half:
        return replace(found, outcome="held")
    if -gain > over_both(change, error, ALPHA / max(1, len(claim.than)))[1]:
        return replace(found, outcome="not held")
    if needed is None:
        return replace(found, why="the test samples are too few, whatever the seeds")
    return replace(found, seeds=needed, why="the interval holds both")


def _changes(sweep: Sweep, claim: Claim, than: str) -> _Changes:
    """Return the differences of one sweep, a pair per seed."""
    rungs = [claim.rung, than] if than else [claim.rung]
    labels = set(sweep.labels.values())
    if absent := [label for label in rungs if label not in labels]:
        return _Changes(np.array([]), why=f"not run: {', '.join(absent)}")
    metric, split = parted(claim.metric)
    if split is not None and column(split, metric) not in sweep.trials:
        return _Changes(np.array([]), why=f"no trial has {claim.metric}")
    matched = _matched(sweep, metric, split or "test")
    both = matched.values[rungs].astype(float).dropna()
    # Rounded as in ``paired``: the last bit of a float is no difference.
    change = (both[claim.rung] - (both[than] if than else claim.number)).round(12).to_numpy()
    found = _Changes(change, withheld=matched.withheld)
    if not len(change):
        return replace(found, why=f"no seed has a number{' of both' if than else ''}")
    is_of_samples = metric in METRICS
    error = _sample_error(sweep, claim, rungs, both.index) if is_of_samples else 0.0
    if math.isnan(error):
        return replace(found, why="no intervals over the test samples of both")
    if is_of_samples and set(rungs) <= set(matched.fixed):
        return replace(found, values=change[:1], error=error, is_one=True)
    return replace(found, error=error)


def _of_networks(parts: Sequence[_Changes]) -> _Changes:
    """Return a pair per network.

    Their test samples are the same, so the error of the mean is at most the mean of their errors.
    """
    for part in parts:
        if part.withheld or part.why:
            return part
    values = np.array([part.mean for part in parts])
    return _Changes(values, float(np.mean([part.error for part in parts])))


def _gain(claim: Claim, difference: float) -> float:
    """Return how far a difference is within what is claimed; negative where it is outside."""
    if claim.kind == "close":
        return claim.least - abs(difference)
    if claim.kind == "sign":
        return difference if claim.is_rise else -difference
    sign = -1 if METRICS[parted(claim.metric)[0]].is_less_better else 1
    return sign * difference - (claim.least if claim.kind == "size" else 0.0)


def _needed(change: Floats, error: float, gain: float) -> int | None:
    """Compute how many seeds would decide a claim; None if no number would or it is unknown."""
    if len(change) < 2:
        return None
    spread = float(change.std(ddof=1))

    def is_enough(seeds: int) -> bool:
        return half_width(spread, seeds, error) < abs(gain)

    if not is_enough(_MANY):
        return None
    return bisect_left(range(_MANY), True, lo=MIN_PAIRS, key=is_enough)


def _sample_error(
    sweep: Sweep, claim: Claim, rungs: Sequence[str], blocks: "pd.Index[int]"
) -> float:
    """Compute the standard error of the mean difference over the test samples; NaN if unknown.

    It is that of the mean if one rung is compared with a number. Trials without draws on test, as
    written before draws were kept, use the root of the summed squares of their own errors: an upper
    bound, since both have the same samples.
    """
    metric, split = parted(claim.metric)
    rows, draws = _drawn(sweep, metric, split or "test")
    hashes = [_hashes(rows[rows["method"] == label], blocks) for label in rungs]
    if all(spec_hash in draws for own in hashes for each in own for spec_hash in each):
        means = [
            np.mean([np.mean([draws[h] for h in each], axis=0) for each in own], axis=0)
            for own in hashes
        ]
        if means[0].shape == means[-1].shape:
            change = means[0] - means[1] if len(means) > 1 else means[0]
            return float(np.nanstd(change, ddof=1))
    if split not in (None, "test"):
        return math.nan  # of shifted images there are draws or nothing
    errors = sweep.intervals["se"]
    each = [
        float(errors.reindex([(h, metric) for each in own for h in each]).mean(skipna=False))
        for own in hashes
    ]
    return math.hypot(*each)


# A table has ten claims of the same metric, each of several rungs.
@lru_cache(maxsize=32)
def _matched(sweep: Sweep, metric: str, split: str) -> Matched:
    return over_seeds(sweep, metric, split)


@lru_cache(maxsize=32)
def _drawn(sweep: Sweep, metric: str, split: str) -> tuple[pd.DataFrame, dict[str, Floats]]:
    """Return the rows of a metric, and its values on each draw."""
    return tidy(sweep, [metric], split), sweep.draws(metric, split)


def _hashes(rows: pd.DataFrame, blocks: "pd.Index[int]") -> list[list[str]]:
    """Return the trials of a rung in each block; one without the seed of the blocks is in all."""
    name = str(blocks.name)
    alone = rows[rows[name].isna()]
    return [
        list(found if len(found := rows[rows[name] == block]["spec_hash"]) else alone["spec_hash"])
        for block in blocks
    ]
