"""TPE whose time stays bounded: past some hundred suggestions it reads the best and the last ones.

Optuna's TPE reads every trial for every suggestion, so that its time grows with their number until
the driver, and not the heads, is what a search waits for. The density of good settings rests on
the 25 best trials however many there are; the density of all others changes little once it rests
on some hundred.

One sampler gives all suggestions of a search. What the trials that ended say, and the density of
good settings while none ends, is worked out once; every digit is that of a sampler of its own.
"""

import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.search_space.group_decomposed import _GroupDecomposedSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tune_calib.tuning.search.as_asked import StudyAsAsked
from tune_calib.tuning.search.densities import Densities

LAST = 300
BEST = 25
"""As many as TPE holds for good, at most (``optuna.samplers._tpe.sampler.default_gamma``)."""

_READ = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
_TOLD = (TrialState.COMPLETE, TrialState.PRUNED)


class RecentTPESampler(TPESampler):
    """``TPESampler`` on the best and the last trials: multivariate, by groups, constant liar.

    Several objectives read every trial.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            super().__init__(multivariate=True, group=True, constant_liar=True)
        self._parzen_estimator_cls: Any = Densities
        self._shown: ShownStudy | None = None
        self._read: dict[int, _Read] = {}
        self._asked_together: Any = None
        self._best: list[FrozenTrial] = []
        self._kinds: list[tuple[str, ...]] | None = None
        self._together: dict[str, BaseDistribution] = {}
        self._good: dict[tuple[str, ...], tuple[list[Any], Any]] = {}

    def reseed(self, seed: int) -> None:
        """Begin anew with a seed, as a new sampler would."""
        self._rng.rng.seed(seed)
        self._random_sampler._rng.rng.seed(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Forget what was shown for the last suggestion."""
        self._shown = None
        super().before_trial(study, trial)

    def _show(self, study: Any) -> Any:
        if self._shown is None:
            trials = self._recent(study)
            self._shown = ShownStudy(study, [self._reading(trial) for trial in trials])
            told = self._shown._get_trials(states=_TOLD)
            self._read = {trial.number: trial for trial in told}
        return self._shown

    def _reading(self, trial: FrozenTrial) -> "_Read":
        known = self._read.get(trial.number) if trial.state in _TOLD else None
        return known or _Read(trial)

    def _recent(self, study: StudyAsAsked) -> list[FrozenTrial]:
        """The last ones, and the best feasible ones of those before."""
        trials = study._get_trials(deepcopy=False, states=_READ)
        if len(study.directions) > 1 or len(trials) <= LAST:
            return trials
        # No trial ends while suggestions are asked for together.
        if study.shown is None or study.shown is not self._asked_together:
            self._asked_together, self._best = study.shown, _best_of(trials, study.direction)
        last = trials[-LAST:]
        before = islice((t for t in self._best if t.number < last[0].number), BEST)
        return [*sorted(before, key=attrgetter("number")), *last]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The settings that are drawn together."""
        shown = self._show(study)
        told = shown._get_trials(states=_TOLD)
        kinds = list(dict.fromkeys(trial.settings for trial in told))
        if kinds != self._kinds:
            firsts = {each.settings: each for each in reversed(told)}
            few: Any = ShownStudy(study, [firsts[kind] for kind in kinds])
            # Those that were shown for other suggestions may group them otherwise.
            self._group_decomposed_search_space = _GroupDecomposedSearchSpace(include_pruned=True)
            self._kinds, self._together = kinds, super().infer_relative_search_space(few, trial)
        return self._together

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

    def _build_parzen_estimator(
        self,
        study: Study,
        search_space: dict[str, BaseDistribution],
        trials: list[Any],
        handle_below: bool,
    ) -> Any:
        """The density of the good ones is that of the last suggestion unless they changed."""
        build = super()._build_parzen_estimator
        if not handle_below:
            return build(study, search_space, trials, handle_below)
        names = tuple(search_space)
        known, density = self._good.get(names, (None, None))
        if known != trials:
            density = build(study, search_space, trials, handle_below)
            self._good[names] = (trials, density)
        return density

    def _get_internal_repr(
        self, trials: list[Any], search_space: dict[str, BaseDistribution], study: Study
    ) -> dict[str, np.ndarray]:
        names = tuple(search_space)
        rows = []
        for trial in trials:
            if names not in trial.rows:
                trial.rows[names] = _row(self._get_params(trial, study), search_space)
            rows.append(trial.rows[names])
        columns = np.array([row for row in rows if row is not None]).reshape(-1, len(names)).T
        return dict(zip(names, columns, strict=True))


class _Read:
    """What a sampler reads of a trial; of one that ended it is worked out once."""

    __slots__ = (
        "constraints",
        "distributions",
        "intermediate_values",
        "number",
        "params",
        "rows",
        "settings",
        "state",
        "system_attrs",
        "values",
    )

    def __init__(self, trial: FrozenTrial) -> None:
        self.number, self.state, self.values = trial.number, trial.state, trial.values
        self.params, self.distributions = trial.params, trial.distributions
        self.settings = tuple(trial.distributions)
        self.constraints = trial.constraints if trial.state in _TOLD else {}
        self.system_attrs = trial.system_attrs
        self.intermediate_values = trial.intermediate_values
        self.rows: dict[tuple[str, ...], list[float] | None] = {}

    @property
    def value(self) -> float | None:
        """Of the only objective."""
        return self.values[0] if self.values else None


class ShownStudy:
    """A study that shows some of its trials alone."""

    def __init__(self, study: Study, shown: Sequence[_Read]) -> None:
        self._study, self._shown = study, shown

    def __getattr__(self, name: str) -> Any:
        """Everything else is the study's."""
        return getattr(self._study, name)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Sequence[TrialState] = _READ,
        use_cache: bool = False,
    ) -> list[_Read]:
        return [trial for trial in self._shown if trial.state in states]


def _best_of(trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """Feasible ones, best first: as many as are the best of those before the last, and more."""
    told = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    told.sort(key=attrgetter("values"), reverse=direction == StudyDirection.MAXIMIZE)
    feasible = (t for t in told if all(excess <= 0 for excess in t.constraints.values()))
    return list(islice(feasible, BEST + LAST))


def _row(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> list[float] | None:
    """Values of the settings that are drawn together; None where one is missing."""
    if not space.keys() <= params.keys():
        return None
    return [distribution.to_internal_repr(params[name]) for name, distribution in space.items()]
