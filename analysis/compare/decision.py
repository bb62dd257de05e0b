"""Decide whether a method is better than a reference, worse, equivalent, or neither is shown.

With three or more networks, the interval of a decision is over networks and test samples; with one
network, over the test samples (and heads, if several were trained), and it holds for that network
alone. Chance raises an ECE, and may raise that of one method more than that of another
(``intervals.noise_floor``): the interval of a difference of ECEs contains the differences with and
without that of the noise floors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

import numpy as np
import pandas as pd

from analysis.compare.claims import NO_ERROR, Changes, measure
from analysis.compare.hypotheses import MIN_PAIRS, UNITS, format_change, holm
from analysis.compare.intervals import ALPHA, Floats, half_width, noise_floors, p_of_both
from analysis.load import Run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import LEAST_P, Cell, full_stops
from analysis.tidy import parted
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import Comparison
from tune_calib.text import format_count

Outcome = Literal["better", "worse", "equivalent", "undecided"]

MARGINS = {"fraction": 0.0025, "nats": 0.002, "score": 0.002}
"""Margins of equivalence by the unit of the metric, e.g. a quarter of a point of ECE."""

_KINKS = 1.1
"""Factor of the bootstrap's error of a difference of distances such as the ECE. A distance has a
kink where the gap of a bin is 0, which its draws cross too often: in simulations, the error was up
to 13 % too small (``tests/analysis/compare/test_decision_rates.py``)."""

_OVER = {
    "networks": "{} and the test samples",
    "heads": "{} on this network and its test samples",
    "splits": "{} of the data, which overlap, and the test samples",
    "samples": "the test samples of this network",
}
_BOUND = ", whose part is an upper bound without shared draws (--bootstrap 1000)"


@dataclass(frozen=True)
class Decision:
    """A decision between a method and a reference, or on another weighted sum of rungs."""

    metric: str
    method: str
    reference: str
    margin: float
    basis: str  # what varies, of ``_OVER``
    pairs: int  # matched networks, heads or splits
    difference: float  # method minus reference; a fraction if the metric is one
    level: float  # 1 - .05 / number of methods that are compared with the reference
    outcome: Outcome = "undecided"
    low: float = np.nan  # of the interval at the simultaneous level
    high: float = np.nan
    p: float = np.nan  # of no difference, with Holm's correction
    p_equivalent: float = np.nan  # twice that of the two one-sided tests, with Holm's correction
    is_bound: bool = False  # the error over the test samples is an upper bound
    why: str = ""  # reason for having no interval

    @property
    def over(self) -> str:
        text = _OVER[self.basis].format(format_count(self.pairs, self.basis.removesuffix("s")))
        return f"{text}{_BOUND}" if self.is_bound else text

    @property
    def margin_text(self) -> str:
        metric = METRICS[self.metric]
        return f"{metric.scale * self.margin:.3g}{UNITS[metric.unit]}"

    @property
    def sentence(self) -> str:
        """Return the decision as a sentence for a paper, with one interval and one p."""
        text = f"By the {METRICS[self.metric].title}, {self.method} is "
        return f"{text}{self.relation_to(self.reference)}; what varies: {self.over}."

    def relation_to(self, name: str) -> str:
        relation = {
            "equivalent": f"equivalent to {name} within {self.margin_text}",
            "undecided": f"not separated from {name}",
        }.get(self.outcome, f"{self.outcome} than {name}")
        size, low, high = (
            format_change(self.metric, value) for value in (self.difference, self.low, self.high)
        )
        details = self.why
        if not details:
            p = self.p_equivalent if self.outcome == "equivalent" else self.p
            holm_name = " (Holm)" if self.level > 1 - ALPHA else ""
            sign = "" if p < LEAST_P else "= "
            details = f"{_percent(self.level)} interval {low} to {high}"
            details += f", p{holm_name} {sign}{Cell.p(p).text}"
        if not np.isnan(self.difference):
            details = f"difference {size}{UNITS[METRICS[self.metric].unit]}, {details}"
        return f"{relation} ({details})"


def margin_of(metric: str, requested: float | None = None) -> float:
    """Return a requested margin of equivalence, or that of the metric; refuse one not above 0."""
    if requested is None:
        return MARGINS[METRICS[metric].unit]
    if not requested > 0:
        raise UserError(f"`margin` must be above 0, got {requested}")
    return requested / METRICS[metric].scale


def decide_sums(
    run: Run, comparisons: Sequence[Comparison], margin: float | None = None
) -> list[Decision]:
    changes = [_measure(run, comparison, comparison.others[0]) for comparison in comparisons]
    return decide(comparisons, changes, margin)


def decide_runs(
    first: Run, second: Run, pairs: Mapping[str, Floats], name: str, margin: float | None = None
) -> list[Decision]:
    """Decide between rungs of one label in two runs, from the changes of their pairs by label."""
    is_shared = _samples(first) == _samples(second)
    comparisons, changes = [], []
    for label, values in pairs.items():
        alone = Comparison(label, metric=name)
        change, reference = _measure(second, alone, ""), _measure(first, alone, "")
        draws, error = np.array([]), math.hypot(change.error, reference.error)
        if is_shared and 0 < len(change.draws) == len(reference.draws):
            draws = change.draws - reference.draws
            error = float(np.nanstd(draws, ddof=1))
        why = reference.why or change.why
        if not why and not len(values):
            why = "no seed has a value in both"
        excess = change.excess - reference.excess
        change = replace(change, values=values, error=error, draws=draws, why=why, excess=excess)
        comparisons.append(Comparison(label, ("A",), name))
        changes.append(change)
    return decide(comparisons, changes, margin)


def _samples(run: Run) -> tuple[str, set[int]]:
    """Return the data set and the numbers of test samples, which tell whether runs share them."""
    bins = run.bins[run.bins["split"] == "test"]
    return run.manifest.dataset, set(bins.groupby(bins["spec_hash"].astype(str))["count"].sum())


def _measure(run: Run, comparison: Comparison, reference: str) -> Changes:
    changes = measure(run, comparison, reference)
    if comparison.metric in ("ece", "test/ece"):
        weights = pd.Series(comparison.weigh(reference))
        excess = (noise_floors(run).reindex(weights.index) * weights).sum(skipna=False)
        changes = replace(changes, excess=0.0 if math.isnan(excess) else float(excess))
    return changes


def decide(
    comparisons: Sequence[Comparison], changes: Sequence[Changes], margin: float | None = None
) -> list[Decision]:
    """Decide on comparisons with one reference, from their changes; the margin is as printed.

    A method is equivalent to the reference if two one-sided tests at 2.5 % reject differences of
    the margin or more (at 5 %, up to 8 % of simulated ones were equivalent), and better or worse if
    a two-sided test at 5 % rejects equality, both with Holm's correction. Equivalence precedes: a
    difference that is certainly smaller than the margin does not matter.
    """
    tested = []
    for comparison, change in zip(comparisons, changes, strict=True):
        tested.append(_test(comparison, change, margin, ALPHA / len(comparisons)))
    corrected = holm(decision.p for decision in tested).tolist()
    corrected_equivalent = holm(decision.p_equivalent for decision in tested).tolist()
    decisions = []
    for decision, p, p_equivalent in zip(tested, corrected, corrected_equivalent, strict=True):
        outcome: Outcome = "undecided"
        if p_equivalent < ALPHA:
            outcome = "equivalent"
        elif p < ALPHA:  # not of NaN, without an interval
            is_less = decision.difference < 0
            is_better = is_less == METRICS[decision.metric].is_less_better
            outcome = "better" if is_better else "worse"
        decisions.append(replace(decision, outcome=outcome, p=p, p_equivalent=p_equivalent))
    return decisions


def _test(comparison: Comparison, change: Changes, margin: float | None, alpha: float) -> Decision:
    metric, pairs = parted(comparison.metric)[0], len(change.values)
    decision = Decision(
        metric=metric, method=comparison.rung, reference=comparison.others[0],
        margin=margin_of(metric, margin), basis="samples" if pairs == 1 else change.basis,
        pairs=pairs, difference=change.mean, level=1 - alpha,
        is_bound=change.error > 0 and not len(change.draws),
    )  # fmt: skip
    if change.why == NO_ERROR:
        return replace(decision, why=f"{NO_ERROR}, which --bootstrap 1000 gives")
    if change.why or 1 < pairs < MIN_PAIRS:
        why = change.why or f"{pairs} of at least {MIN_PAIRS} {decision.basis}"
        return replace(decision, why=why)
    spread = float(change.values.std(ddof=1)) / math.sqrt(pairs) if pairs > 1 else 0.0
    if decision.basis == "splits":
        # Halves of one pool share half of their samples: the variance of their mean is (1 / n + 1)
        # times that of a split (Nadeau and Bengio, Machine Learning 2003).
        spread *= math.sqrt(1 + pairs)
    error = change.error * (_KINKS if METRICS[metric].is_distance else 1)
    error = max(error, 1e-12)  # equal classifiers differ by 0
    half = half_width(spread, pairs - 1, error, alpha)
    # The means without and with the part that is due to the noise floors.
    least = change.mean - max(change.excess, 0.0)
    most = change.mean - min(change.excess, 0.0)
    beyond = max(least, -most, 0.0)
    inside = decision.margin - max(most, -least)
    return replace(
        decision,
        low=float(least - half),
        high=float(most + half),
        p=float(p_of_both(beyond, spread, pairs - 1, error)),
        p_equivalent=float(p_of_both(max(inside, 0.0), spread, pairs - 1, error)),
    )


def decisions_table(decisions: Sequence[Decision], head: str) -> Table:
    metric, level = decisions[0].metric, f"{_percent(decisions[0].level)} interval"
    holm_head = " (Holm)" if len(decisions) > 1 else ""
    records = []
    for decision in decisions:
        record = {
            head: Cell(decision.method),
            "decision": Cell(decision.outcome),
            "difference": Cell.number(metric, decision.difference, signed=True),
            level: Cell.span(metric, decision.low, decision.high, signed=True),
            f"p{holm_head}": Cell.p(decision.p),
            f"p of equivalence{holm_head}": Cell.p(decision.p_equivalent),
            "why": Cell(decision.why),
        }
        records.append(record)
    caption = " ".join(full_stops([METRICS[metric].head, *describe_rules(decisions)]))
    first, label = ["decision", "difference", level], label_of("decisions", metric)
    return Table("decisions", caption, records, first=first, label=label).without_blank()


def describe_rules(decisions: Sequence[Decision]) -> list[str]:
    tested = [decision for decision in decisions if not decision.why]
    if not tested:
        return []
    first = tested[0]
    lines = [f"What varies: {over}" for over in dict.fromkeys(map(attrgetter("over"), tested))]
    if first.basis in ("heads", "samples"):
        lines.append("The decisions are about this network, not about others")
    if first.basis == "splits":
        lines.append("The decisions are about the networks of this run, not about others")
    else:
        lines.append("The draw of select and calib does not enter (--split-seeds 5 repeats it)")
    correction, level = "", "Intervals: 95 %"
    if len(decisions) > 1:
        correction = f", with Holm's correction over {len(decisions)} comparisons"
        level = f"Intervals are simultaneous, {_percent(first.level)} each, so Holm may decide more"
    lines += [
        f"Better, worse: a two-sided test at 5 %{correction}",
        f"Equivalent, which precedes: two one-sided tests at 2.5 % within {first.margin_text}"
        f"{correction}",
        level,
    ]
    if first.metric == "ece":
        lines.append(
            "They contain the differences with and without that of the noise floors, which chance "
            "alone explains"
        )
    return lines


def _percent(level: float) -> str:
    return f"{100 * level:.4g} %"
