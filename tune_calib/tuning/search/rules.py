"""Rules that end suggestions of a search before their last stage.

A suggestion passes stages, each with trials of its own. With ``race`` they are the seeds, one after
the other (Maron and Moore, 1994; Birattari et al., 2002); with ``halving`` they are complete
schedules of more and more epochs (Jamieson and Talwalkar, 2016; Li et al., 2018). After each stage
a rule decides by results that do not depend on the order in which trials end.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tune_calib.text import format_count
from tune_calib.tuning.search.definition import Objective, SuggestionResult

ALPHA = 0.05  # of each one-sided test of a race
LEAST_COMPLETE = 3  # visible suggestions from which the noise between seeds is estimated
LEAST_PAIRS = 12  # promoted suggestions from which the ranks of two rungs can stop promotions

Passed = Sequence[SuggestionResult]
"""The results of the stages that a suggestion has passed."""


class Rule(Protocol):
    """Decides which suggestions of a batch go on, and what the sampler reads of them."""

    def select(self, stages: Mapping[int, Passed], batch_size: int) -> Collection[int]:
        """Return the numbers of the suggestions that go on, of those whose stage is over."""

    def estimate(self, stages: Passed) -> SuggestionResult:
        """Return what the sampler reads of a suggestion that did not pass all stages."""


class Race:
    """Excludes suggestions that are worse than the incumbent beyond the noise between seeds.

    The incumbent is the best complete suggestion within the guard. After k seeds, another one has
    the mean difference d to it in the first metric (less is better) on the same seeds. It is
    excluded if d > t s / sqrt(k), with the quantile t of Student's distribution for ``ALPHA`` on
    one side, and the standard deviation s of a difference at one seed. s^2 is twice the variance of
    losses without effects of suggestion and seed, pooled over complete suggestions (within the
    guard, if there are enough of them). Likewise it is excluded if its mean loss of accuracy
    exceeds the guard by more than t s' / sqrt(k), with the pooled standard deviation s' of a loss
    of accuracy between the seeds of a suggestion, and if a trial is at chance. None is excluded
    before ``LEAST_COMPLETE`` others are complete.
    """

    def __init__(
        self,
        objective: Objective,
        results: Mapping[int, SuggestionResult],
        passed: Mapping[int, Passed],
    ) -> None:
        """Read the results of the visible suggestions, and those of their stages."""
        self.objective = objective
        complete = [n for n, r in results.items() if r.status == "done" and not r.at_chance]
        within = objective.within_guard(results)
        pool = list(within) if len(within) >= LEAST_COMPLETE else complete
        self.is_open = len(pool) < LEAST_COMPLETE
        if self.is_open:
            return
        best = min(complete, key=lambda number: (objective.rank(results[number]), number))
        self.has_incumbent = best in within
        self.losses, self.drops = self._read(passed[best])
        pairs = [self._read(passed[number]) for number in pool]
        losses, drops = (np.array(arrays) for arrays in zip(*pairs, strict=True))
        count, seeds = losses.shape
        rest = losses - losses.mean(axis=0) - losses.mean(axis=1, keepdims=True) + losses.mean()
        freedom = (count - 1) * (seeds - 1)
        noise = sqrt(2 * np.square(rest).sum() / freedom)
        noise_of_drops = sqrt(drops.var(axis=1, ddof=1).mean())
        # For one seed.
        self.bound = stdtrit(freedom, 1 - ALPHA) * noise
        self.bound_of_drops = stdtrit(count * (seeds - 1), 1 - ALPHA) * noise_of_drops

    def _read(self, stages: Passed) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the losses in the first metric, and the losses of accuracy, by seed."""
        losses = [self.objective.losses(result)[0] for result in stages]
        return np.array(losses), np.array([result.drop for result in stages])

    def select(self, stages: Mapping[int, Passed], batch_size: int) -> list[int]:
        return [number for number, passed in stages.items() if not self.excludes(passed)]

    def excludes(self, stages: Passed) -> bool:
        if any(result.status != "done" for result in stages):
            return True
        if self.is_open:
            return False
        count, mean = len(stages), _average(stages)
        lost = self.objective.excess(mean) - self.bound_of_drops / sqrt(count)
        worse = 0.0
        if self.has_incumbent:
            losses, _ = self._read(stages)
            worse = np.mean(losses - self.losses[:count]) - self.bound / sqrt(count)
        # Rounding errors must not decide.
        return mean.at_chance or bool(round(worse, 12) > 0 or round(lost, 12) > 0)

    def estimate(self, stages: Passed) -> SuggestionResult:
        """Return the means of the incumbent plus the mean differences on the shared seeds.

        Without one, the differences are to the suggestion that exceeds the guard the least.
        """
        losses, drops = self._read(stages)
        shared = slice(len(stages))
        loss = self.losses.mean() + np.mean(losses - self.losses[shared])
        drop = self.drops.mean() + np.mean(drops - self.drops[shared])
        value = float(self.objective.signs[0] * loss)
        at_chance = _average(stages).at_chance
        return SuggestionResult("done", (value,), float(drop), at_chance=at_chance)


def _average(stages: Passed) -> SuggestionResult:
    drop = float(np.mean([result.drop for result in stages]))
    return SuggestionResult("done", (), drop, any(result.at_chance for result in stages))


@dataclass(frozen=True)
class Tau:
    """The agreement of the ranks of two rungs over the suggestions that passed both."""

    value: float  # Kendall's tau-b; NaN if one rung has equal values only
    count: int

    @property
    def is_chance(self) -> bool:
        return self.count >= LEAST_PAIRS and not self.value > 0

    def describe(self) -> str:
        text = f"Kendall's tau {self.value:.2f} over {format_count(self.count, 'promotion')}"
        return f"{text}: not above chance, so no more are promoted" if self.is_chance else text


def compute_taus(objective: Objective, passed: Iterable[Passed], rungs: int) -> list[Tau]:
    """Compute the agreement between each rung and the next one."""
    from scipy.stats import kendalltau  # slow to import

    pairs: list[list[tuple[float, float]]] = [[] for _ in range(rungs - 1)]
    for stages in passed:
        for rung, (short, long) in enumerate(pairwise(stages)):
            if short.status == long.status == "done":
                pairs[rung].append((objective.losses(short)[0], objective.losses(long)[0]))
    taus = []
    for of_rung in pairs:
        value = float("nan")
        if len(of_rung) > 1:
            value = float(kendalltau(*zip(*of_rung, strict=True)).statistic)
        taus.append(Tau(value, len(of_rung)))
    return taus


class Halving:
    """Promotes the best share of each rung, unless its ranks were worthless so far."""

    def __init__(self, objective: Objective, factor: int, taus: Sequence[Tau]) -> None:
        self.objective, self.factor, self.taus = objective, factor, taus

    def select(self, stages: Mapping[int, Passed], batch_size: int) -> list[int]:
        ranked = []
        for number, passed in stages.items():
            result, rung = passed[-1], len(passed)
            if result.status == "done" and not self.taus[rung - 1].is_chance:
                ranked.append((self.objective.rank(result), number))
        count = max(1, batch_size // self.factor ** max(map(len, stages.values())))
        return [number for _, number in sorted(ranked)[:count]]

    def estimate(self, stages: Passed) -> SuggestionResult:
        return stages[0]
