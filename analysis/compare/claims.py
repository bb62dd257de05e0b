"""Judge whether results support a paper's claim: paired differences over seeds and test samples.

A difference is uncertain by training, the spread over seeds, whose variance falls with their
number; and by the test samples, which all seeds share: the spread of the mean difference over
bootstrap draws, the same for all rungs. The variances add up. A quantity that is not a metric does
not depend on test samples, so it is judged over seeds only.

Every comparison is a weighted sum of the values of some rungs (``Comparison.weigh``): a difference,
a difference from a multiple, a slope over a setting, or a difference of ranks.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import numpy as np
import pandas as pd

from analysis.compare.gather import over_seeds
from analysis.compare.hypotheses import MIN_PAIRS
from analysis.compare.intervals import ALPHA, Floats, half_width, over_both
from analysis.compare.network_check import compute_network_check, explain_rival
from analysis.load import Run, cached_per_run
from analysis.shifts import read_draws
from analysis.tidy import parted, pooled_seeds, tidy, tied
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Claim, Comparison

Outcome = Literal["held", "not held", "not decided", "no verdict"]

NO_ERROR = "no intervals over the test samples"
_MANY = 10_000


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim: none without over-confidence, or without a value of a quantity."""

    claim: Claim
    outcome: Outcome
    comparison: Comparison  # of the claim, the one that decides
    than: str  # the rung that it is compared with; empty for a number or a trend
    difference: float = math.nan  # mean of the weighted sum over the pairs
    low: float = math.nan  # of its 95 % interval over seeds and, for a metric, test samples
    high: float = math.nan
    pairs: int = 0  # number of matched seeds
    # Number of seeds that would decide, if difference and spread stayed the same; None after a
    # decision, if no number up to 10,000 would decide, or if it is unknown.
    seeds: int | None = None
    why: str = ""  # reason for making no decision


@dataclass(frozen=True)
class Changes:
    """Weighted sums of the values of rungs, over seeds."""

    values: Floats  # one per pair
    error: float = math.nan  # standard error of their mean over the test samples
    draws: Floats = field(default_factory=lambda: np.array([]))  # their mean on draws of samples
    basis: str = "networks"  # what the pairs are: networks, heads or splits
    is_one: bool = False  # each rung has one trial, which is in every pair
    why_no_verdict: str = ""  # from the network check, or for a quantity without a value
    why: str = ""  # reason for having no values
    excess: float = 0.0  # part of their mean that chance explains, for decisions

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self.values) else math.nan


def judge(groups: Sequence[Sequence[Run]], claim: Claim) -> Verdict:
    """Judge a claim by its mean over groups of runs; the runs of a group share their test samples.

    A claim is held if each of its comparisons is held at 95 %, without a correction, since all of
    them must hold. It is not held if one comparison is not held at 95 % with Bonferroni's
    correction, since chance has one opportunity per comparison.
    """
    count = sum(len(comparison.others) for comparison in claim.comparisons)
    verdicts = []
    for comparison in claim.comparisons:
        for than in comparison.others:
            undecided = Verdict(claim, "not decided", comparison, than)
            verdicts.append(_decide(undecided, _average(groups, comparison, than), count))
    for outcome in ("not held", "no verdict", "not decided"):
        if decisive := [verdict for verdict in verdicts if verdict.outcome == outcome]:
            # If the number of seeds is unknown for one comparison, it is unknown for the claim.
            return max(decisive, key=lambda verdict: verdict.seeds or math.inf)
    verdicts = [verdict for verdict in verdicts if verdict.comparison is claim]
    return min(verdicts, key=lambda verdict: abs(verdict.difference))


def _decide(undecided: Verdict, changes: Changes, comparisons: int) -> Verdict:
    values, error, mean = changes.values, changes.error, changes.mean
    undecided = replace(undecided, difference=mean, pairs=len(values))
    if changes.why_no_verdict:
        return replace(undecided, outcome="no verdict", why=changes.why_no_verdict)
    if changes.why:
        return replace(undecided, why=changes.why)
    gain = gain_of(undecided.comparison, mean)

    def is_enough(seeds: int) -> bool:
        spread = float(values.std(ddof=1)) / math.sqrt(seeds)
        return half_width(spread, seeds - 1, error) < abs(gain)

    needed = None
    if len(values) > 1 and is_enough(_MANY):
        needed = bisect_left(range(_MANY), True, lo=MIN_PAIRS, key=is_enough)
    if len(values) < MIN_PAIRS and not changes.is_one:
        why = f"{len(values)} of at least {MIN_PAIRS} seeds"
        return replace(undecided, seeds=needed or MIN_PAIRS, why=why)
    _, half = over_both(values, error)
    verdict = replace(undecided, low=mean - half, high=mean + half)
    if gain > half:
        return replace(verdict, outcome="held")
    if -gain > over_both(values, error, ALPHA / comparisons)[1]:
        return replace(verdict, outcome="not held")
    if needed is None:
        return replace(verdict, why="too few test samples, however many seeds")
    return replace(verdict, seeds=needed, why="the interval includes both outcomes")


def _average(groups: Sequence[Sequence[Run]], comparison: Comparison, than: str) -> Changes:
    """Average sums seed by seed, with a pair per network in a group of several runs.

    The runs of a group share their test samples, so the error of their mean is at most the mean of
    their errors. Errors of groups add up within a data set, else their squares.
    """
    parts = []
    for runs in groups:
        of_runs = [measure(run, comparison, than) for run in runs]
        for part in of_runs:
            if part.why_no_verdict or part.why:
                return part
        means = np.array([part.mean for part in of_runs])
        mean = Changes(means, float(np.mean([part.error for part in of_runs])))
        parts.append(mean if len(runs) > 1 else of_runs[0])
    if len(parts) == 1:
        return parts[0]
    pairs = min(len(part.values) for part in parts)
    values = np.mean([part.values[:pairs] for part in parts], axis=0)
    datasets = [runs[0].manifest.dataset for runs in groups]
    errors = pd.Series([part.error for part in parts]).groupby(datasets).sum(min_count=1)
    error = float(np.sqrt((errors**2).sum(skipna=False))) / len(parts)
    return Changes(values, error, is_one=all(part.is_one for part in parts))


def measure(run: Run, comparison: Comparison, than: str) -> Changes:
    weights = comparison.weigh(than)
    labels = set(run.labels.values())
    if absent := [label for label in weights if label not in labels]:
        return Changes(np.array([]), why=f"not run: {', '.join(absent)}")
    metric, split = parted(comparison.metric)
    if split is not None and column(split, metric) not in run.trials:
        return Changes(np.array([]), why=f"no trial has {comparison.metric}")
    matched = over_seeds(run, metric, split or "test")
    values = matched.values.astype(float)
    if comparison.kind == "rank":
        values = tied(values.dropna()).rank(axis=1, ascending=METRICS[metric].is_less_better)
    values = values[list(weights)].dropna()
    span = max((n for label, n in pooled_seeds(run).items() if label in weights), default=1)
    if span > 1:
        values = values.groupby(values.index // span).mean()
    number = comparison.number if len(weights) == 1 else 0.0
    change = tied(values @ pd.Series(weights) - number).to_numpy()
    basis = str(values.index.name).replace("_seed", "s")
    why_no_verdict = compute_network_check(run).why_no_verdict
    if not why_no_verdict and len(comparison.than) == 1:
        why_no_verdict = explain_rival(run, than)
    changes = Changes(change, basis=basis, why_no_verdict=why_no_verdict)
    is_of_samples = metric in METRICS
    if not len(change):
        which = "all compared rungs" if len(weights) > 1 else "the rung"
        why = f"no seed has a value for {which}"
        is_run = set(weights) <= set(run.done["rung"].map(run.labels))
        if is_run and not is_of_samples:  # a quantity that says nothing about these trials
            return replace(changes, why_no_verdict=changes.why_no_verdict or why)
        return replace(changes, why=why)
    draws, error = np.array([]), 0.0
    if is_of_samples:
        draws, error = _sample_error(run, comparison, weights, values.index, span)
    if math.isnan(error):
        return replace(changes, why=NO_ERROR)
    if is_of_samples and set(weights) <= set(matched.fixed):
        changes = replace(changes, values=change[:1], is_one=True)
    if span > 1 and len(change) < MIN_PAIRS:  # the spread over two pools says little
        changes = replace(changes, values=change.mean(keepdims=True), is_one=True)
    return replace(changes, error=error, draws=draws)


def gain_of(comparison: Comparison, value: float) -> float:
    """Return the margin by which a weighted sum agrees with a claim; negative if it does not."""
    if comparison.kind == "close":
        return comparison.least - abs(value)
    if comparison.kind in ("sign", "trend"):
        return value if comparison.is_rise else -value
    is_less = comparison.kind == "rank" or METRICS[parted(comparison.metric)[0]].is_less_better
    gain = -value if is_less else value
    if comparison.kind == "size":
        gain -= comparison.least
    return gain


def _sample_error(
    run: Run,
    comparison: Comparison,
    weights: Mapping[str, float],
    blocks: "pd.Index[int]",
    span: int,  # seeds of a block
) -> tuple[Floats, float]:
    """Return the mean sum on draws of the test samples, and its standard error; NaN if unknown.

    The seeds with draws of all rungs suffice, since a mean over more seeds has no larger error.
    Without any, it is the root of the summed squares of the errors of the rungs, which is an upper
    bound, since the rungs share the samples.
    """
    metric, split = parted(comparison.metric)
    rows, draws = drawn_rows(run, metric, split or "test")
    is_rank = comparison.kind == "rank"
    labels = list(run.labels.values()) if is_rank else list(weights)
    hashes = {label: _hashes(rows[rows["method"] == label], blocks, span) for label in labels}
    drawn_blocks = []
    for trials in zip(*hashes.values(), strict=True):
        if all(trials) and draws.keys() >= set(chain.from_iterable(trials)):
            drawn_blocks.append(trials)
    if drawn_blocks:
        means = {}
        for label, of_label in zip(labels, zip(*drawn_blocks, strict=True), strict=True):
            # Blocks count alike, however many trials they have.
            drawn_means = [np.mean([draws[trial] for trial in block], axis=0) for block in of_label]
            means[label] = np.mean(drawn_means, axis=0)
        if len(set(map(np.shape, means.values()))) == 1:
            drawn = pd.DataFrame(means)
            if is_rank:
                drawn = tied(drawn).rank(axis=1, ascending=METRICS[metric].is_less_better)
            sums = (drawn[list(weights)] @ pd.Series(weights)).to_numpy()
            return sums, float(np.nanstd(sums, ddof=1))
    if split not in (None, "test") or is_rank:
        return np.array([]), math.nan  # shifted images and ranks have draws or no error at all
    recorded = run.intervals["se"].unstack("metric").reindex(columns=[metric])[metric]
    errors = recorded.combine_first(_plain_errors(run, metric))
    weighted = []
    for label, of_blocks in hashes.items():
        error = errors.reindex(list(chain.from_iterable(of_blocks))).mean(skipna=False)
        weighted.append(weights[label] * float(error))
    return np.array([]), math.hypot(*weighted)


@cached_per_run
def _plain_errors(run: Run, metric: str) -> "pd.Series[float]":
    """Return the standard errors by spec hash that need no bootstrap, or none for a metric.

    That of the accuracy is binomial. An ECE is the mean over the samples of d = confidence -
    correct, with the sign of the sample's bin; O-ECE and U-ECE omit bins. Their variance is thus at
    most E[d^2] minus their square. E[d^2] is the variance of the confidence gap plus its square.
    """
    trials = run.trials.set_index("spec_hash").filter(like="test/")
    trials.columns = trials.columns.str.removeprefix("test/")
    bins = run.bins[run.bins["split"] == "test"]
    samples = bins.groupby(bins["spec_hash"].astype(str))["count"].sum().reindex(trials.index)
    if metric == "accuracy":
        return (trials[metric] * (1 - trials[metric]) / samples) ** 0.5
    has_gap = {"confidence_gap", "confidence_gap_se"} <= set(trials)
    if metric in ("ece", "aece", "o_ece", "u_ece") and has_gap:
        squares = trials["confidence_gap"] ** 2 - trials[metric] ** 2
        return (trials["confidence_gap_se"] ** 2 + squares / samples).clip(lower=0) ** 0.5
    return pd.Series(dtype=float)


@cached_per_run
def drawn_rows(run: Run, metric: str, split: str) -> tuple[pd.DataFrame, dict[str, Floats]]:
    return tidy(run, [metric], split), read_draws(run.out, metric, split)


def _hashes(rows: pd.DataFrame, blocks: "pd.Index[int]", span: int) -> list[list[str]]:
    seeds = rows[str(blocks.name)]
    shared = rows.loc[seeds.isna(), "spec_hash"].tolist()
    return [rows.loc[seeds // span == block, "spec_hash"].tolist() or shared for block in blocks]
