"""Decide whether a method is better than a reference, worse, equivalent, or neither is shown.

A decision rests on what varies. With three or more networks, its interval is that of claims: over
networks and test samples. With one network, it is over the test samples (and over the heads, if
several were trained) and holds for that network alone.

The difference in question is the mean over test sets of this size. Chance raises an ECE, and it may
raise that of one method more than that of another (``intervals.noise_floor``). The interval of a
difference of ECEs therefore contains the differences with and without that of the noise floors.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Literal

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.compare.claims import NO_ERROR, Changes, measure
from analysis.compare.gather import over_seeds
from analysis.compare.hypotheses import MIN_PAIRS
from analysis.compare.intervals import ALPHA, Floats, noise_floors, over_both, standard_error
from analysis.load import Run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, full_stops, minus, records_of
from analysis.tidy import parted
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Comparison
from tune_calib.text import format_count

Outcome = Literal["better", "worse", "equivalent", "undecided"]
Basis = Literal["networks", "heads", "splits", "samples"]

MARGINS = {"fraction": 0.0025, "nats": 0.002, "score": 0.002}
"""Margins of equivalence by the unit of the metric, e.g. a quarter of a point of ECE."""

_KINKS = 1.1
"""Factor of the bootstrap's error of a difference of ECEs or of other distances. A distance has a
kink where the gap of a bin is 0, and its draws, with the noise of the sample and their own, cross
it too often: in simulations, the error was up to 13 % too small
(``tests/analysis/compare/test_decision_rates.py``)."""

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
    reference: str  # empty for a sum that is no difference of two rungs
    margin: float
    basis: Basis
    outcome: Outcome = "undecided"
    pairs: int = 0  # matched networks or heads
    difference: float = np.nan  # method minus reference; a fraction if the metric is one
    low: float = np.nan  # of the interval at the simultaneous level
    high: float = np.nan
    level: float = 1 - ALPHA  # 1 - .05 / number of methods that are compared with the reference
    p: float = np.nan  # of no difference, with Holm's correction
    p_equivalent: float = np.nan  # twice that of the two one-sided tests, with Holm's correction
    is_bound: bool = False  # the error over the test samples is an upper bound
    why: str = ""  # reason for having no interval

    @property
    def comparisons(self) -> int:
        """Return the number of decisions of its family."""
        return round(ALPHA / (1 - self.level))

    @property
    def over(self) -> str:
        """Describe what the interval is over, e.g. ``5 networks and the test samples``."""
        text = _OVER[self.basis].format(format_count(self.pairs, self.basis.removesuffix("s")))
        return f"{text}{_BOUND}" if self.is_bound else text

    @property
    def sentence(self) -> str:
        """Describe the decision, without a full stop."""
        text = f"{self.method} is {self.relation_to(self.reference)}"
        return text if self.why else f"{text}; the interval is over {self.over}"

    def relation_to(self, name: str) -> str:
        """Describe the relation to the reference under a name, with the interval."""
        relations = {
            "better": f"better than {name}",
            "worse": f"worse than {name}",
            "equivalent": f"equivalent to {name} within {describe_margin(self)}",
            "undecided": f"not separated from {name}",
        }
        ends = (_signed(self.metric, end) for end in (self.low, self.high))
        interval = self.why or f"{_percent(self.level)} interval {' to '.join(ends)}"
        if not np.isnan(self.difference):
            size = f"difference {_signed(self.metric, self.difference)}{unit_of(self.metric)}"
            interval = f"{size}, {interval}"
        return f"{relations[self.outcome]} ({interval})"


def describe_margin(decision: Decision) -> str:
    """Format the margin of a decision with its unit, e.g. ``0.25 points``."""
    return f"{METRICS[decision.metric].scale * decision.margin:.3g}{unit_of(decision.metric)}"


def unit_of(metric: str) -> str:
    """Return the unit of a difference, after a space; empty without one."""
    return {"fraction": " points", "nats": " nats", "score": ""}[METRICS[metric].unit]


def _signed(metric: str, value: float) -> str:
    return minus(METRICS[metric].format(value, signed=True))


def margin_of(metric: str, requested: float | None = None) -> float:
    """Return a requested margin of equivalence, or that of the metric; refuse one not above 0."""
    if requested is None:
        return MARGINS[METRICS[metric].unit]
    if not requested > 0:
        raise UserError(f"`margin` must be above 0, got {requested}")
    return requested / METRICS[metric].scale


def compare_with(
    run: Run, methods: Sequence[str], reference: str, metric: str, margin: float | None = None
) -> list[Decision]:
    """Decide between methods of a run and a reference; the margin is as printed."""
    comparisons = [Comparison(method, (reference,), metric) for method in methods]
    return decide_sums(run, comparisons, margin)


def decide_sums(
    run: Run, comparisons: Sequence[Comparison], margin: float | None = None
) -> list[Decision]:
    """Decide on the weighted sums of comparisons of a metric, each with one rung."""
    undecided, changes = [], []
    for comparison in comparisons:
        metric, split = parted(comparison.metric)
        split = split or "test"
        (than,) = comparison.others
        change = measure(run, comparison, than)
        excess = _excess(run, comparison.weigh(than), metric, split)
        changes.append(replace(change, excess=excess))
        basis = find_basis(run, metric, split)
        names = (metric, comparison.rung, than)
        undecided.append(Decision(*names, margin_of(metric, margin), basis))
    return decide(undecided, changes)


def decide_runs(
    first: Run, second: Run, metric: str, changes: Mapping[str, Floats], split: str
) -> list[Decision]:
    """Decide between the rungs of the same label in two runs, from the changes of their pairs."""
    undecided, measured = [], []
    for label, values in changes.items():
        alone = Comparison(label, metric=column(split, metric))
        first_changes, second_changes = measure(first, alone, ""), measure(second, alone, "")
        draws, error = np.array([]), math.hypot(first_changes.error, second_changes.error)
        has_draws = 0 < len(first_changes.draws) == len(second_changes.draws)
        if has_draws and _share_samples(first, second):
            draws = second_changes.draws - first_changes.draws
            error = float(np.nanstd(draws, ddof=1))
        excess = _excess(second, {label: 1.0}, metric, split)
        excess -= _excess(first, {label: 1.0}, metric, split)
        why = first_changes.why or second_changes.why
        if not why and not len(values):
            why = "no seed has a value in both"
        measured.append(Changes(values, error, draws, why=why, excess=excess))
        basis = find_basis(second, metric, split)
        undecided.append(Decision(metric, label, "A", margin_of(metric), basis))
    return decide(undecided, measured)


def _share_samples(first: Run, second: Run) -> bool:
    """Return whether two runs have the same test samples, as far as their data and number show."""
    samples = []
    for run in (first, second):
        bins = run.bins[run.bins["split"] == "test"]
        counts = bins.groupby(bins["spec_hash"].astype(str))["count"].sum()
        samples.append((run.manifest.dataset, set(counts)))
    return samples[0] == samples[1]


def find_basis(run: Run, metric: str, split: str = "test") -> Basis:
    """Return whether splits or networks of a run vary, or only the heads on its network."""
    bases: dict[str, Basis] = {"head_seed": "heads", "split_seed": "splits"}
    return bases.get(str(over_seeds(run, metric, split).values.index.name), "networks")


def _excess(run: Run, weights: Mapping[str, float], metric: str, split: str) -> float:
    """Return the weighted sum of the noise floors of rungs; 0 for a metric without one."""
    if metric != "ece" or split != "test":
        return 0.0
    excess = 0.0
    for index, label in run.labels.items():
        if label in weights:
            floors = noise_floors(run).reindex(run.of_rung(index)["spec_hash"])
            excess += weights[label] * float(floors.mean())
    return 0.0 if np.isnan(excess) else excess


def decide(undecided: Sequence[Decision], changes: Sequence[Changes]) -> list[Decision]:
    """Complete decisions that are compared with one reference, from their changes.

    A method is equivalent to the reference if two one-sided tests at 2.5 % reject differences of
    the margin or more, and better or worse if a two-sided test at 5 % rejects equality, both with
    Holm's correction over the decisions that have an interval. A 95 % interval thus decides both.
    (With two tests at 5 %, up to 8 % of simulated differences of the margin were equivalent, since
    an error is small where a difference is.) Equivalence precedes: a difference that is certainly
    smaller than the margin does not matter, even if its sign is certain.
    """
    decisions = []
    for decision, change in zip(undecided, changes, strict=True):
        decisions.append(_test(decision, change, len(undecided)))
    tested = [index for index, decision in enumerate(decisions) if not decision.why]
    if not tested:
        return decisions
    differ = _holm([decisions[index].p for index in tested])
    equal = _holm([decisions[index].p_equivalent for index in tested])
    for index, p, p_equivalent in zip(tested, differ, equal, strict=True):
        decision = replace(decisions[index], p=p, p_equivalent=p_equivalent)
        decisions[index] = replace(decision, outcome=_outcome(decision))
    return decisions


def _holm(values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction."""
    if len(values) == 1:  # the function collects garbage, which takes a tenth of a second
        return list(values)
    return list(map(float, multipletests(values, method="holm")[1]))


def _test(decision: Decision, change: Changes, comparisons: int) -> Decision:
    """Return a decision with its interval and both p, before Holm's correction."""
    pairs = len(change.values)
    alpha = ALPHA / comparisons
    decision = replace(decision, pairs=pairs, difference=change.mean, level=1 - alpha)
    if pairs == 1:
        decision = replace(decision, basis="samples")
    if change.why:
        return replace(decision, why=_advise(change.why))
    if 1 < pairs < MIN_PAIRS:
        return replace(decision, why=f"{pairs} of at least {MIN_PAIRS} {decision.basis}")
    error_of_samples = change.error
    if METRICS[decision.metric].is_distance:
        error_of_samples *= _KINKS
    spread = float(change.values.std(ddof=1)) if pairs > 1 else 0.0
    if decision.basis == "splits":
        # Halves of one pool share half of their samples, so that the variance of their mean is
        # (1 / n + 1) times that of a split (Nadeau and Bengio, Machine Learning 2003).
        error_of_samples = math.hypot(error_of_samples, spread)
    mean, half = over_both(change.values, error_of_samples, alpha)
    error, freedom = standard_error(spread, pairs, error_of_samples)
    error = max(error, 1e-12)  # of equal classifiers, which differ by 0
    # The means without and with the part that is due to the noise floors.
    least, most = mean - max(change.excess, 0.0), mean - min(change.excess, 0.0)
    beyond = max(least, -most, 0.0)
    inside = min(decision.margin - most, decision.margin + least)
    return replace(
        decision,
        is_bound=change.is_bound,
        low=least - half,
        high=most + half,
        p=float(2 * stats.t.sf(beyond / error, freedom)),
        p_equivalent=min(1.0, float(2 * stats.t.sf(inside / error, freedom))),
    )


def _advise(why: str) -> str:
    if why == NO_ERROR:
        return f"{why}, which --bootstrap 1000 gives"
    return why


def _outcome(decision: Decision) -> Outcome:
    if decision.p_equivalent < ALPHA:
        return "equivalent"
    if decision.p >= ALPHA:
        return "undecided"
    is_less = decision.difference < 0
    return "better" if is_less == METRICS[decision.metric].is_less_better else "worse"


def decisions_table(decisions: Sequence[Decision], head: str) -> Table:
    """Build a table of decisions on one metric; ``head`` is that of the methods."""
    metric, level = decisions[0].metric, f"{_percent(decisions[0].level)} interval"
    holm = " (Holm)" if decisions[0].comparisons > 1 else ""
    number, span = partial(Cell.number, metric, signed=True), partial(Cell.span, metric)
    columns: dict[str, list[Cell]] = defaultdict(list)
    for decision in decisions:
        columns[head].append(Cell(decision.method))
        columns["decision"].append(Cell(decision.outcome))
        columns["difference"].append(number(decision.difference))
        columns[level].append(span(decision.low, decision.high, signed=True))
        columns[f"p{holm}"].append(Cell.p(decision.p))
        columns[f"p of equivalence{holm}"].append(Cell.p(decision.p_equivalent))
        columns["why"].append(Cell(decision.why))
    caption = " ".join(full_stops([METRICS[metric].head, *describe_rules(decisions)]))
    first, label = ["decision", "difference", level], label_of("decisions", metric)
    table = Table("decisions", caption, records_of(columns), first=first, label=label)
    return table.without_blank()


def describe_rules(decisions: Sequence[Decision]) -> list[str]:
    """Explain how decisions of one family are made, in lines without a full stop."""
    tested = [decision for decision in decisions if not decision.why]
    if not tested:
        return []
    first = tested[0]
    lines = [f"What varies: {over}" for over in dict.fromkeys(map(attrgetter("over"), tested))]
    if first.basis in ("heads", "samples"):
        lines.append("The decisions are about this network, not about others")
    correction, level = "", "Intervals: 95 %"
    if first.comparisons > 1:
        correction = f", with Holm's correction over {first.comparisons} comparisons"
        level = f"Intervals are simultaneous, {_percent(first.level)} each, so Holm may decide more"
    lines += [
        f"Better, worse: a two-sided test at 5 %{correction}",
        f"Equivalent, which precedes: two one-sided tests at 2.5 % within {describe_margin(first)}"
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
