"""TPE whose time stays bounded: past some hundred suggestions it reads the best and the last ones.

Optuna's TPE reads every trial for every suggestion, so that its time grows with their number until
the driver, and not the heads, is what a search waits for. The density of good settings rests on
the 25 best trials however many there are; the density of all others changes little once it rests
on some hundred.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

LAST = 300
BEST = 25
"""As many as TPE holds for good, at most (``optuna.samplers._tpe.sampler.default_gamma``)."""

_READ = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


class RecentTPESampler(TPESampler):
    """``TPESampler`` on what ``RecentStudy`` shows, for one suggestion.

    Several objectives read every trial.
    """

    _shown: Any = None

    def _show(self, study: Study) -> Any:
        if len(study.directions) > 1:
            return study
        if self._shown is None:
            self._shown = RecentStudy(study)
        return self._shown

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The settings that are drawn together."""
        return super().infer_relative_search_space(self._show(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw them."""
        return super().sample_relative(self._show(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        """Draw a setting that no trial has had so far."""
        return super().sample_independent(self._show(study), trial, param_name, param_distribution)


class RecentStudy:
    """A study that shows its last trials, and the best feasible ones of those before."""

    def __init__(self, study: Study) -> None:
        self._study = study
        trials = study._get_trials(deepcopy=False, states=_READ)
        self._first = trials[-LAST].number if len(trials) > LAST else 0
        self._best = _best(trials[:-LAST], study.direction)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the study's."""
        return getattr(self._study, name)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Sequence[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        trials = self._study._get_trials(deepcopy, states, use_cache)
        last = bisect_left(trials, self._first, key=lambda trial: trial.number)
        return [*self._best, *trials[last:]]


def _best(trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    sign = 1 if direction == StudyDirection.MINIMIZE else -1
    told = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    told.sort(key=lambda trial: sign * trial.values[0])
    feasible = (t for t in told if all(excess <= 0 for excess in t.constraints.values()))
    return sorted(islice(feasible, BEST), key=lambda trial: trial.number)
