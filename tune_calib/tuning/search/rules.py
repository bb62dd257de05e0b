"""Rules that end suggestions of a search before their last stage.

They decide by results that do not depend on the order in which trials end.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tune_calib.tuning.search.definition import Objective, SuggestionResult

LEAST_PAIRS = 12  # promoted suggestions from which the ranks of two rungs can stop promotions

Passed = Sequence[SuggestionResult]
"""The results of the stages that a suggestion has passed."""


class Race:
    """Excludes suggestions that are worse than the incumbent on the seeds that they have.

    The incumbent is the best complete suggestion within the guard. Before it gets a further seed, a
    suggestion is excluded if its mean in the first metric is worse than that of the incumbent on
    the same seeds, if its mean loss of accuracy exceeds the guard, or if a trial is at chance. This
    is the intensification of ParamILS and SMAC (Hutter et al., 2009, 2011).
    """

    def __init__(
        self,
        objective: Objective,
        results: Mapping[int, SuggestionResult],
        passed: Mapping[int, Passed],
    ) -> None:
        self.objective = objective
        complete = [n for n, r in results.items() if r.status == "done" and not r.at_chance]
        self.is_open = not complete
        if complete:
            best = min(complete, key=lambda number: (objective.rank(results[number]), number))
            self.is_within = best in objective.within_guard(results)
            self.best = self._read(passed[best])

    def _read(self, stages: Passed) -> NDArray[np.float64]:
        """Return losses in the first metric, and below them losses of accuracy, by seed."""
        losses = [self.objective.losses(result)[0] for result in stages]
        return np.array([losses, [result.drop for result in stages]])

    def select(self, stages: Mapping[int, Passed], batch_size: int) -> list[int]:
        return [number for number, passed in stages.items() if not self.excludes(passed)]

    def excludes(self, stages: Passed) -> bool:
        if any(result.status != "done" for result in stages):
            return True
        if self.is_open:
            return False
        loss, drop = self._read(stages).mean(axis=1)
        # Rounding errors must not decide.
        is_worse = round(loss - self.best[0, : len(stages)].mean(), 12) > 0
        exceeds_guard = round(drop - self.objective.guard, 9) > 0
        at_chance = any(result.at_chance for result in stages)
        return at_chance or exceeds_guard or (self.is_within and is_worse)

    def estimate(self, stages: Passed) -> SuggestionResult:
        """Return what the sampler reads: means of the incumbent plus the mean differences to it.

        Without one, the differences are to the suggestion that exceeds the guard the least.
        """
        shared = self.best[:, : len(stages)]
        loss, drop = self.best.mean(axis=1) + (self._read(stages) - shared).mean(axis=1)
        at_chance = any(result.at_chance for result in stages)
        value = float(self.objective.signs[0] * loss)
        return SuggestionResult("done", (value,), float(drop), at_chance=at_chance)


class Tau(NamedTuple):
    """The agreement of the ranks of two rungs over the suggestions that passed both."""

    value: float  # Kendall's tau-b; NaN if one rung has equal values only
    pairs: int

    @property
    def is_chance(self) -> bool:
        return self.pairs >= LEAST_PAIRS and not self.value > 0


def compute_taus(objective: Objective, passed: Iterable[Passed], rungs: int) -> list[Tau]:
    from scipy.stats import kendalltau  # slow to import

    pairs: list[list[list[float]]] = [[] for _ in range(rungs - 1)]
    for stages in passed:
        for of_rung, results in zip(pairs, pairwise(stages), strict=False):
            if all(result.status == "done" for result in results):
                of_rung.append([objective.losses(result)[0] for result in results])
    taus = []
    for of_rung in pairs:
        value = float("nan")
        if len(of_rung) > 1:
            value = float(kendalltau(*np.transpose(of_rung)).statistic)
        taus.append(Tau(value, len(of_rung)))
    return taus


class Halving:
    """Promotes the best share of each rung, unless its ranks were worthless so far.

    After Jamieson and Talwalkar (2016) and Li et al. (2018), with complete schedules.
    """

    def __init__(self, objective: Objective, factor: int, taus: Sequence[Tau]) -> None:
        self.objective, self.factor, self.taus = objective, factor, taus

    def select(self, stages: Mapping[int, Passed], batch_size: int) -> list[int]:
        """Return the suggestions that go on, of a bracket of some size."""
        rung = max(map(len, stages.values()))
        if self.taus[rung - 1].is_chance:
            return []
        ends = {number: passed[-1] for number, passed in stages.items()}
        ranked = [(self.objective.rank(r), n) for n, r in ends.items() if r.status == "done"]
        return [n for _, n in sorted(ranked)[: max(1, batch_size // self.factor**rung)]]

    def estimate(self, stages: Passed) -> SuggestionResult:
        """Return what the sampler reads: the lowest rung, which every suggestion has."""
        return stages[0]
