"""The Optuna study of a search, to which only its driver writes.

Suggestion n is trial n of the study. The sampler is seeded anew for every n, and reads a copy of
the study in which trials are open if their results were not known when the suggestion was due. An
interrupted or extended search thus gets the same suggestions as one that ran as a whole. Each is
added to the study in one write, so that none is incomplete.

No suggestion repeats a point, so that searches of equal length try equally many.
"""

import contextlib
import itertools
import math
import random
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, Literal

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tune_calib.determinism import child_seed
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import read_search_manifest
from tune_calib.results.manifests import SearchOutcome
from tune_calib.results.selection import find_lost
from tune_calib.results.tables import read_table
from tune_calib.spec.names import SEARCH_EVALUATED
from tune_calib.spec.samplers import SAMPLERS, build_random
from tune_calib.spec.space import Choice, Point
from tune_calib.text import format_count
from tune_calib.tuning.search.definition import SearchDefinition, SuggestionResult, restrict_space
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.storage import find_storage, lost_database, open_storage

STATUS = "status"
RETRY_OF = "retry_of"
PASSED = "stages"  # stages that a suggestion has passed, in a search with several
HIDDEN = "hidden"  # earlier suggestions without a result when one on networks was drawn
GUARD = "accuracy"
OWNER = "owner"  # attribute of a study in a database: folder and session of its driver
DRAWS = 10  # of a sampler that repeats points, before a new one is drawn uniformly

FrozenPoint = frozenset[tuple[str, Choice]]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Optuna log only errors in the block; the user's own studies keep their level."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


class SearchStudy:
    """The suggestions of a search by number and their results, in a database or a journal file."""

    @_quiet()
    def __init__(
        self,
        definition: SearchDefinition,
        out: AnyPath,
        url: str | None = None,
        is_read_only: bool = False,
        identity: str | None = None,  # instead of that of the definition
    ) -> None:
        storage = open_storage(url, out, is_read_only)
        self._definition, self._objective = definition, definition.objective
        self._sampler, self._stages = SAMPLERS[definition.sampler], Stages(definition)
        self._space = restrict_space(definition.method, definition.resolved, definition.grid)
        name = f"tune-calib {identity or definition.identity}"
        directions = self._objective.directions
        if not is_read_only:
            optuna.create_study(
                storage=storage, study_name=name, directions=directions, load_if_exists=True
            )
        try:
            self._study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            raise UserError("the storage contains no study of this search") from None
        self._storage, self._id = storage, storage.get_study_id_from_name(name)
        self._copied: _Copy | None = None  # for the last suggestions
        self._trials_read, self._retries = 0, 0
        self._tried: set[FrozenPoint] = set()  # points of the trials that were read
        self._session: str | None = None
        if url is not None and not is_read_only:
            self._session = uuid.uuid4().hex
            owner = {"folder": str(out.resolve()), "session": self._session}
            self._study.set_user_attr(OWNER, owner)

    def _refuse_taken(self) -> None:
        """Refuse to write to a study that another process has taken over meanwhile."""
        owner = self._study.user_attrs.get(OWNER, {})
        if self._session is not None and owner.get("session") != self._session:
            raise RefusedError(
                f"another tune-calib took over the study of this search in {owner.get('folder')}; "
                "only one may run"
            )

    def suggestion(self, number: int) -> FrozenTrial:
        return self.suggestions([number])[0]

    @_quiet()
    def suggestions(
        self, numbers: Iterable[int], first_hidden: int | None = None
    ) -> list[FrozenTrial]:
        """Return suggestions by number, until the space has no more points; draw new ones.

        The sampler does not read the results of suggestions from number ``first_hidden`` on.
        """
        trials, suggestions = self._trials(), list[FrozenTrial]()
        visible: Study | None = None
        for number in numbers:
            if number >= len(trials):
                retries, tried = self._read_points(trials)
                if len(tried) >= self._space.size:
                    break
                if visible is None:
                    self._refuse_taken()
                    visible = self._copy(trials, first_hidden)
                first = self._definition.points[number - retries :][:1]
                trials.append(self._suggest(visible, number, first, tried))
            suggestions.append(trials[number])
        return suggestions

    def _copy(self, trials: Sequence[FrozenTrial], first_hidden: int | None) -> Study:
        shown, copied = trials[:first_hidden], self._copied
        # Copying thousands of trials takes as long as drawing, so that a copy is kept, unless it
        # has more trials, since a sampler repeated a point, or shows results that are hidden now.
        if copied is None or copied.count != len(trials) or copied.shown > len(shown):
            copied = self._copied = _Copy(self._objective.directions, trials)
        copied.show(shown)
        return copied.study

    def _suggest(
        self, visible: Study, number: int, first: Sequence[Point], tried: Set[FrozenPoint]
    ) -> FrozenTrial:
        """Draw a new point from the copy, or take ``first``, and add it to both studies."""
        seed = child_seed(self._definition.sampler_seed, "ask ", number) % 2**32
        visible.sampler = self._sampler.build(seed)
        points = first
        if self._sampler.is_sequence and not points:
            points = self._space.sobol(1, self._definition.sampler_seed, first=number)
        has_stages = self._stages.count > 1 and self._stages.slot == "network"
        if has_stages:
            hidden = visible.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for point in points:
            visible.enqueue_trial(dict(point))
        for draw in itertools.count():
            if draw == DRAWS:
                visible.sampler = build_random(seed)
                if self._space.size < math.inf:
                    left = [p for p in self._space.points() if frozenset(p.items()) not in tried]
                    visible.enqueue_trial(random.Random(seed).choice(left))
            opened, drawn = visible.ask(), dict[str, Choice]()
            for name, setting in self._space.settings.items():
                if setting.matters(drawn):
                    drawn[name] = _suggest(opened, name, setting.distribution)
            trial = visible.get_trials(deepcopy=False)[-1]
            if first or frozenset(trial.params.items()) not in tried:
                break
            visible.tell(trial.number, state=TrialState.FAIL)  # which no sampler reads
        if has_stages:
            trial.set_user_attr(HIDDEN, [trial.number for trial in hidden])
        self._study.add_trial(trial)
        return self._trials()[number]  # the copy may have another number

    def write_result(
        self,
        number: int,
        result: SuggestionResult,
        observed: SuggestionResult | None = None,
        passed: int | None = None,
    ) -> None:
        """Write the result of a suggestion, or what the sampler is to observe instead of it."""
        self._refuse_taken()
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        trial = Trial(self._study, trial_id)
        trial.set_user_attr(STATUS, result.status)
        if passed is not None:
            trial.set_user_attr(PASSED, passed)
        observed = observed or result
        if observed.status == "done":
            if GUARD not in trial.constraints:
                trial.set_constraint(GUARD, self._objective.excess(observed))
            self._study.tell(number, observed.values)
        else:
            self._study.tell(number, state=TrialState.FAIL)  # which no sampler reads

    def find_retries(self, status: str) -> list[FrozenTrial]:
        trials = self._trials()
        retried = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        return [t for t in trials if status_of(t) == status and t.number not in retried]

    def retry(self, status: str) -> None:
        for trial in self.find_retries(status):
            self._study.add_trial(
                create_trial(
                    state=TrialState.RUNNING,
                    params=trial.params,
                    distributions=trial.distributions,
                    user_attrs={RETRY_OF: trial.number},
                )
            )

    def planned(self, length: int) -> int:
        """Count the suggestions of a search of some length, including retries."""
        trials = self._trials()
        retries, tried = self._read_points(trials)
        length = self._stages.fill_brackets(length)
        if self._sampler.tries_grid:
            length = min(length, len(self._definition.points))
        if self._space.size < math.inf:
            untried = int(self._space.size) - len(tried)
            length = min(length, len(trials) - retries + max(0, untried))
        return length + retries

    def finished(self) -> list[int]:
        return [trial.number for trial in self._trials() if trial.state.is_finished()]

    def states(self) -> list[str]:
        """Return the status of every trial by number, including ``running``."""
        return list(map(status_of, self._trials()))

    @_quiet()
    def divergences(
        self, losses: Sequence[float], quantile: float, numbers: Iterable[int]
    ) -> dict[str, float]:
        """Compute how settings differ in the best share of some trials by losses (PED-ANOVA)."""
        # These import scikit-learn and pandas, which counting suggestions does not need.
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        trials, tried = self._trials(), set[str]()
        study = optuna.create_study(directions=self._objective.directions)
        for number in numbers:
            study.add_trial(trials[number])
            tried.update(trials[number].params)
        with warnings.catch_warnings():
            # They concern a target to be minimised and unscaled importances.
            warnings.simplefilter("ignore")
            return get_param_importances(
                study,
                evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile),
                params=[name for name in self._space.settings if name in tried],
                target=lambda trial: losses[trial.number],
                normalize=False,
            )

    def _read_points(self, trials: Sequence[FrozenTrial]) -> tuple[int, set[FrozenPoint]]:
        """Return the number of retries, and the points of all trials, of which the last are new."""
        for trial in trials[self._trials_read :]:
            self._tried.add(frozenset(trial.params.items()))
            self._retries += trial.user_attrs.get(RETRY_OF) is not None
        self._trials_read = len(trials)
        return self._retries, self._tried

    @_quiet()
    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


class _Copy:
    """A copy of the trials of a study in memory, which shows the results of some."""

    def __init__(
        self, directions: Sequence[Literal["minimize", "maximize"]], trials: Iterable[FrozenTrial]
    ) -> None:
        self._storage, self.shown = InMemoryStorage(), 0
        self.study = optuna.create_study(
            storage=self._storage, study_name="copy", directions=directions
        )
        self.study.add_trials(map(_reopen, trials))
        self._id = self._storage.get_study_id_from_name("copy")

    @property
    def count(self) -> int:
        return self._storage.get_n_trials(self._id)

    def show(self, trials: Sequence[FrozenTrial]) -> None:
        """Copy the results of the first trials that have ended since the last time."""
        self.shown = len(trials)
        copies = self.study.get_trials(deepcopy=False)
        for trial in trials:
            if trial.state.is_finished() and not copies[trial.number].state.is_finished():
                number = trial.number
                trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
                for name, value in trial.constraints.items():
                    Trial(self.study, trial_id).set_constraint(name, value)
                self._storage.set_trial_state_values(trial_id, trial.state, trial.values)


def _reopen(trial: FrozenTrial) -> FrozenTrial:
    # Of the system attributes only constraints are results; samplers wrote the others.
    attributes = {k: v for k, v in trial.system_attrs.items() if "constraints" not in k}
    return create_trial(
        state=TrialState.RUNNING,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=attributes,
    )


def status_of(trial: FrozenTrial) -> str:
    """Return the status of a suggestion: ``running``, or that of its result."""
    state = trial.state.name.lower()
    # The status is written before the result; after a kill in between, the trial is running.
    return str(trial.user_attrs.get(STATUS, state)) if trial.state.is_finished() else state


def _suggest(trial: Trial, name: str, distribution: Any) -> Choice:
    if isinstance(distribution, CategoricalDistribution):
        chosen: Choice = trial.suggest_categorical(name, distribution.choices)
        return chosen
    low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, low, high, step=step, log=log)
    return trial.suggest_float(name, low, high, step=step, log=log)


def search_status(out: AnyPath, study_storage: str | None = None, is_running: bool = False) -> str:
    """Describe the progress of a search, without writing; ``is_running``: its driver is."""
    rows = read_table(out, "trials", columns=["spec_hash", "status"])
    statuses = rows["status"].to_pylist()
    trials = f"{format_count(len(statuses), 'trial')} with a result ({format_counts(statuses)})"
    manifest = read_search_manifest(out)
    with lost_database(study_storage):
        url = find_storage(out, study_storage, manifest.study_storage)
        # A grid depends on the method's defaults, and these, as rungs, on the recipe.
        question = manifest.question
        needs_recipe = SAMPLERS[question.sampler].tries_grid or question.halving > 0
        definition = SearchDefinition.read(manifest, needs_recipe)
        # By the identity in the manifest, so that plug-ins need not be loaded.
        study = SearchStudy(definition, out, url, is_read_only=True, identity=manifest.search)
        states = [state for state in study.states() if state != "running"]
        ended, planned = len(states), study.planned(manifest.trials)
    outcome = SearchOutcome.find(out)
    has_lost = outcome is not None and find_lost(outcome, rows["spec_hash"].to_pylist())
    suggestions = f"{ended} of {planned} suggestions ended ({format_counts(states)})"
    lines = [f"{out}: {suggestions}; {trials}"]
    if planned < manifest.trials:
        lines.append(f"{manifest.trials} were requested, but there are no more points")
    if (out / SEARCH_EVALUATED).exists():
        lines.append(f"evaluated on test: {out / 'evaluation'}")
    elif ended < planned or has_lost:
        if not is_running:
            lines.append(f"continue with: tune-calib resume {out}")
    else:
        lines.append(f"finished; tables, figures and a page: tune-calib report {out}")
    return "\n".join(lines)


def format_counts(states: Iterable[str]) -> str:
    """Count the trials in each state, e.g. ``1 diverged, 11 done``."""
    return ", ".join(f"{n} {state}" for state, n in sorted(Counter(states).items())) or "none yet"
