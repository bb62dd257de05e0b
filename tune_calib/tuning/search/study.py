"""The Optuna study of a search: asked, told and taken up again by the driver alone.

Suggestion n is trial n of the study. The sampler is seeded anew for every n, so that what it
suggests depends on what the study holds and not on the process that asks: a search that was
interrupted goes on as if nothing had happened.

The sampler reads a copy of the study in memory, in which trials look open whose standing was not
known when the suggestion was due. A search that was made longer has standings that a search of the
whole length would not have had yet, and both get the same suggestions. What it suggests is added to
the study in one write, so that no suggestion is half-made.
"""

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.request import SamplerName
from tune_calib.spec.space import Choice, Point, Space
from tune_calib.tuning.search.objective import Objective, Standing

STATUS = "status"
WORST = "worst"
OPEN = ("running", "waiting")
RETRY_OF = "retry_of"
GUARD = "accuracy"

LAST, BEST = 300, 25
"""Trials that TPE reads: the last ones that ended, and the best ones before them."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Suggestion:
    """A suggestion of the study.

    Attributes:
        number: of the suggestion, and of the study's trial.
        point: values by ``slot.key`` of the settings that matter.
        is_finished: whether it was told already.
    """

    number: int
    point: Point
    is_finished: bool


class SearchStudy:
    """The suggestions of a search by number, and their results.

    Args:
        storage: where the study lies.
        name: its name there.
        space: what is searched.
        objective: what for.
        sampler: how; ``grid`` tries the points alone.
        seed: of the sampler.
        points: tried first, in this order.
        is_read_only: look at what is there, and write nothing.

    Raises:
        UserError: the study is to be read, and there is none.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        space: Space,
        objective: Objective,
        sampler: SamplerName,
        seed: int,
        points: Sequence[Point],
        is_read_only: bool = False,
    ) -> None:
        self._space = space
        self._objective = objective
        self._sampler: SamplerName = sampler
        self._seed = seed
        self._points = points
        self._counted = self._again = 0
        if not is_read_only:
            optuna.create_study(
                storage=storage,
                study_name=name,
                directions=objective.directions,
                load_if_exists=True,
            )
        try:
            self._study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            raise UserError("the storage holds no study of this search") from None
        self._storage, self._id = storage, storage.get_study_id_from_name(name)

    def suggestion(self, number: int, known: int | None = None) -> Suggestion:
        """Return suggestion ``number``, which is new if the study does not hold it.

        Args:
            number: of the suggestion.
            known: number from which on the sampler may read no standing yet; all unless given.
        """
        (found,) = self.suggestions([number], known)
        return found

    def suggestions(self, numbers: Iterable[int], known: int | None = None) -> list[Suggestion]:
        """Return several suggestions, reading the storage once.

        Args:
            numbers: known ones, or one after the other; those that the space has no point for
                are left out.
            known: as for one.
        """
        trials = self._trials()
        again = self._retries(trials)
        found: list[Suggestion] = []
        shown: Study | None = None
        for number in numbers:
            if number < len(trials):
                if not self._is_made(trials[number]):
                    trials[number] = self._finish(trials[number])
            elif self._is_exhausted(trials):
                break
            else:
                shown = shown or self._copy(trials, known)
                trials.append(self._suggest(shown, number, self._points[number - again :][:1]))
            is_finished = trials[number].state.is_finished()
            found.append(Suggestion(number, trials[number].params, is_finished))
        if shown is not None and len(self._trials()) != len(trials):
            raise UserError(
                "the study has trials that this search did not ask for; one program alone may "
                "write to it"
            )
        return found

    def _copy(self, trials: Sequence[FrozenTrial], known: int | None) -> Study:
        """Return a study in memory in which the trials from ``known`` on look open."""
        shown = optuna.create_study(directions=self._objective.directions)
        last = len(trials) if known is None else known
        # One that waits would be taken for the suggestion that is asked for.
        seen = [*trials[:last], *map(_as_open, trials[last:])]
        seen = [trial for trial in seen if trial.state != TrialState.WAITING]
        if self._sampler == "tpe" and len(shown.directions) == 1:
            seen = _recent(seen, shown.direction)
        shown.add_trials(seen)
        return shown

    def _suggest(self, shown: Study, number: int, given: Sequence[Point]) -> FrozenTrial:
        """Draw a suggestion from the copy, and add it to both studies."""
        shown.sampler = self._sampler_of(number)
        for point in given:
            shown.enqueue_trial(dict(point))
        self._fill(shown.ask())
        made = shown.get_trials(deepcopy=False)[-1]
        self._study.add_trial(made)
        return made

    def _fill(self, trial: Trial) -> None:
        point: dict[str, Choice] = {}
        for name, setting in self._space.settings.items():
            if setting.matters(point):
                point[name] = _suggest(trial, name, setting.distribution)

    def _is_made(self, trial: FrozenTrial) -> bool:
        if trial.state == TrialState.RUNNING:
            return self._space.is_whole(trial.params)
        return trial.state.is_finished()

    def _finish(self, trial: FrozenTrial) -> FrozenTrial:
        """Finish a suggestion that waits, or that an earlier version left half-made."""
        self._study.sampler = RandomSampler(seed=self._seed_of(trial.number))
        is_waiting = trial.state == TrialState.WAITING
        self._fill(self._study.ask() if is_waiting else self._open(trial.number))
        return self._trials()[trial.number]

    def _open(self, number: int) -> Trial:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        return Trial(self._study, trial_id)

    def _seed_of(self, number: int) -> int:
        return child_seed(self._seed, "ask ", number) % 2**32

    def _sampler_of(self, number: int) -> BaseSampler:
        seed = self._seed_of(number)
        if self._sampler == "nsga2":
            return NSGAIISampler(seed=seed)
        if self._sampler != "tpe":
            return RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(multivariate=True, group=True, constant_liar=True, seed=seed)

    def tell(self, number: int, standing: Standing) -> None:
        """Finish a suggestion.

        Only a trial that is done gives values. One that was stopped is pruned, with the epoch
        and without a value; what diverged or crashed failed, which a sampler does not read, and
        has the worst finite values as an attribute.
        """
        trial = self._open(number)
        trial.set_user_attr(STATUS, standing.status)
        if standing.status == "done":
            if GUARD not in trial.constraints:
                trial.set_constraint(GUARD, self._objective.excess(standing))
            self._study.tell(number, standing.values)
        elif standing.status == "stopped":
            trial.set_user_attr("epoch", standing.epoch)
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            trial.set_user_attr(WORST, [METRICS[name].worst for name in self._objective.metrics])
            self._study.tell(number, state=TrialState.FAIL)

    def retry(self, status: str) -> list[int]:
        """Suggest again what ended with a status and was not tried again.

        Returns:
            Numbers of the new suggestions.
        """
        trials = self._trials()
        tried = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        again = [trial for trial in trials if _state(trial) == status and trial.number not in tried]
        for trial in again:
            self._study.enqueue_trial(dict(trial.params), user_attrs={RETRY_OF: trial.number})
        return list(range(len(trials), len(trials) + len(again)))

    def retried(self) -> dict[int, int]:
        """Return the suggestions that repeat another one, by number."""
        return _retried(self._trials())

    def has(self, number: int) -> bool:
        """Return whether there is a suggestion of a number, or a point left for it."""
        trials = self._trials()
        return number < len(trials) or not self._is_exhausted(trials)

    def planned(self, asked: int) -> int:
        """Return the number of suggestions in total: no more than the grid or the space has.

        Args:
            asked: for; those that are tried again come on top.
        """
        trials = self._trials()
        again = self._retries(trials)
        if self._sampler == "grid":
            asked = min(asked, len(self._points))
        if self._is_exhausted(trials):
            asked = min(asked, len(trials) - again)
        return asked + again

    def _is_exhausted(self, trials: Sequence[FrozenTrial]) -> bool:
        """Return whether every point of a finite space was suggested."""
        if len(trials) < self._space.size:
            return False
        tried = {frozenset(trial.params.items()) for trial in trials}
        return all(frozenset(point.items()) in tried for point in self._space.points())

    def finished(self) -> int:
        """Count the suggestions that ended."""
        return sum(trial.state.is_finished() for trial in self._trials())

    def states(self) -> list[str]:
        """Return the status of every trial by number, ``running`` and ``waiting`` among them."""
        return [_state(trial) for trial in self._trials()]

    def divergences(self, index: int, quantile: float) -> dict[str, float]:
        """Compute how differently each setting is distributed in the best trials (PED-ANOVA).

        Args:
            index: of the objective.
            quantile: share of the trials with values that are the best, in (0, 1).
        """
        # These bring scikit-learn and pandas, and most who open a study only count in it.
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        sign = 1 if self._objective.directions[index] == "minimize" else -1
        tried = {name for trial in self._trials() if trial.values for name in trial.params}
        with warnings.catch_warnings():
            # That a target is to be made small, and that importances may be left unscaled.
            warnings.simplefilter("ignore")
            return get_param_importances(
                self._study,
                evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile),
                params=[name for name in self._space.settings if name in tried],
                target=lambda trial: sign * trial.values[index],
                normalize=False,
            )

    def _retries(self, trials: Sequence[FrozenTrial]) -> int:
        """Count the trials that repeat another one, reading each trial once."""
        self._again += len(_retried(trials[self._counted :]))
        self._counted = len(trials)
        return self._again

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


def _recent(trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """Return the trials without those that ended long ago, except the best of them.

    TPE's time grows with the trials that it reads. Its density of good settings rests on the 25
    best however many there are, and that of all others changes little beyond some hundred.
    """
    before = [trial for trial in trials if trial.state.is_finished()][:-LAST]
    feasible = [
        trial
        for trial in before
        if trial.state == TrialState.COMPLETE
        and all(excess <= 0 for excess in trial.constraints.values())
    ]
    is_reversed = direction == StudyDirection.MAXIMIZE
    best = sorted(feasible, key=lambda trial: trial.values, reverse=is_reversed)[:BEST]
    left_out = {trial.number for trial in before} - {trial.number for trial in best}
    return [trial for trial in trials if trial.number not in left_out]


def _as_open(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial as it was before it was told."""
    if not trial.state.is_finished():
        return trial
    is_open = copy.copy(trial)
    is_open.state, is_open.values = TrialState.RUNNING, None
    is_open.datetime_complete = None
    # Of the system's attributes only constraints are told; samplers wrote the others.
    is_open.system_attrs = {
        key: value for key, value in trial.system_attrs.items() if "constraints" not in key
    }
    return is_open


def _state(trial: FrozenTrial) -> str:
    # The status is written before the trial is told: a kill in between leaves it running.
    state = trial.state.name.lower()
    return str(trial.user_attrs.get(STATUS, state)) if trial.state.is_finished() else state


def _retried(trials: Sequence[FrozenTrial]) -> dict[int, int]:
    firsts = ((trial.number, trial.user_attrs.get(RETRY_OF)) for trial in trials)
    return {number: first for number, first in firsts if first is not None}


def _suggest(trial: Trial, name: str, distribution: Any) -> Choice:
    match distribution:
        case CategoricalDistribution(choices=choices):
            chosen: Choice = trial.suggest_categorical(name, choices)
            return chosen
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(name, low, high, log=log)
    raise TypeError(f"cannot suggest from {distribution}")


def points_of(space: Space, sampler: SamplerName, first: Sequence[Point]) -> list[Point]:
    """Return the points that come before the sampler: published values, or the whole grid."""
    if sampler != "grid":
        return list(first)
    grid: list[Mapping[str, Choice]] = [p for p in space.grid() if p not in first]
    return [*first, *grid]
