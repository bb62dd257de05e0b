"""TPE whose time stays bounded: past some hundred suggestions it reads the best and the last ones.

Optuna's TPE reads every trial for every suggestion, so that its time grows with their number until
the driver, and not the heads, is what a search waits for. The density of good settings rests on
the 25 best trials however many there are; the density of all others changes little once it rests
on some hundred.
"""

from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

LAST = 500
BEST = 25
"""As many as TPE holds for good, at most (``optuna.samplers._tpe.sampler.default_gamma``)."""


class RecentTPESampler(TPESampler):
    """``TPESampler`` on what ``RecentStudy`` shows; several objectives read every trial."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The settings that are drawn together."""
        return super().infer_relative_search_space(_shown(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw them."""
        return super().sample_relative(_shown(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        """Draw a setting that no trial has had so far."""
        return super().sample_independent(_shown(study), trial, param_name, param_distribution)


class RecentStudy:
    """A study that shows its last trials, and the best feasible ones of those before."""

    def __init__(self, study: Study) -> None:
        self._study = study

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
        return [*self._best(trials[:-LAST]), *trials[-LAST:]]

    def _best(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        sign = 1 if self._study.direction == StudyDirection.MINIMIZE else -1
        told = [(sign * t.values[0], t.number, t) for t in trials if t.values is not None]
        kept: list[FrozenTrial] = []
        for _, _, trial in sorted(told):
            if len(kept) == BEST:
                break
            if all(excess <= 0 for excess in trial.constraints.values()):
                kept.append(trial)
        return sorted(kept, key=lambda trial: trial.number)


def _shown(study: Study) -> Any:
    return study if len(study.directions) > 1 else RecentStudy(study)
