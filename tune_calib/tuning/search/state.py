"""The state of a search: its study, the rows of its trials, the results of its suggestions."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import ceil, inf
from operator import mul
from typing import Any

from optuna.trial import FrozenTrial

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.selection import Row
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.text import format_points
from tune_calib.tuning.folder import Deadline, Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.reuse import copy_rows
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    SuggestionResult,
    compute_means,
    list_hashes,
)
from tune_calib.tuning.search.rules import Halving, Race, Tau, compute_taus
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.study import HIDDEN, PASSED, SearchStudy, status_of
from tune_calib.tuning.search.warm import Reusable
from tune_calib.tuning.work.executor import OVER, Resources, configuration
from tune_calib.tuning.work.jobs import MAX_HEAD_BATCH, Job, format_suggestions, make_plan
from tune_calib.tuning.work.worker import plugins_of

# Columns of ``trials`` to read; all of them may take gigabytes.
COLUMNS = ("spec_hash", "rung", "status", "epoch", "network_seed", "flags", "select/*")


@dataclass
class SearchState:
    """The state of a search; it can be rebuilt from the study and the rows."""

    out: AnyPath
    definition: SearchDefinition
    study: SearchStudy
    length: int  # suggestions, without retries
    retry: str | None = None  # status of the trials to suggest again
    needs: Sequence[Resources] = ()  # of the kinds of Ray trials
    deadline: Deadline = field(default_factory=Deadline)
    rows: dict[str, Row] = field(default_factory=dict)  # by spec hash
    crashed: dict[str, str] = field(default_factory=dict)  # names of Ray trials by spec hash
    errors: dict[str, str] = field(default_factory=dict)  # of Ray trials, by name
    results: dict[int, SuggestionResult] = field(default_factory=dict)  # by number
    reusable: Mapping[str, Reusable] = field(default_factory=dict)  # rows by spec hash
    passed: dict[int, list[SuggestionResult]] = field(default_factory=dict)  # stages by number
    _hashes: dict[int, list[list[str]]] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

    @cached_property
    def stages(self) -> Stages:
        return Stages(self.definition)

    @property
    def candidates(self) -> Candidates:
        return self.definition.candidates

    @property
    def objective(self) -> Objective:
        return self.definition.objective

    @property
    def planned(self) -> int:
        """Count the suggestions with retries, as far as the space has points."""
        return self.study.planned(self.length)

    @property
    def is_over(self) -> bool:
        """Return whether every suggestion has ended, and the baseline has its rows."""
        if self.retry is not None and self.study.find_retries(self.retry):
            return False
        is_complete = len(self.study.finished()) >= self.planned and self.count_left() == 0
        return is_complete and self.has_baseline

    @property
    def has_baseline(self) -> bool:
        return self.rows.keys() >= set(list_hashes(chain.from_iterable(self.stages.baselines)))

    def read_rows(self, name: str = "*") -> None:
        table = read_table(self.out, "trials", name, columns=COLUMNS)
        hashes = table["spec_hash"].to_pylist()
        self.rows |= zip(hashes, table.drop_columns("spec_hash").to_pylist(), strict=True)

    def hashes_by_stage(self, suggestion: FrozenTrial) -> list[list[str]]:
        """Return the spec hashes of a suggestion by stage, one for each of its trials."""
        number = suggestion.number
        if number not in self._hashes:
            stages = self.stages.list_trials(suggestion.params, number)
            self._hashes[number] = list(map(list_hashes, stages))
        return self._hashes[number]

    def hashes(self, suggestion: FrozenTrial) -> list[str]:
        """Return the spec hashes of a suggestion in the stages that it has passed."""
        stages = self.hashes_by_stage(suggestion)
        return list(chain.from_iterable(stages[: self.count_passed(suggestion)]))

    def count_passed(self, suggestion: FrozenTrial) -> int:
        """Count the stages that a suggestion has passed; all of them if it has not ended."""
        return int(suggestion.user_attrs.get(PASSED, self.stages.count))

    def start(self, suggestions: Iterable[FrozenTrial], stage: int = 0) -> list[PlannedTrial]:
        """Return the trials of a stage without a row that were not started yet."""
        new: dict[str, PlannedTrial] = {}
        for suggestion in suggestions:
            for trial in self.stages.list_trials(suggestion.params, suggestion.number)[stage]:
                if trial.spec.hash not in self.rows and trial.spec.hash not in self._started:
                    new[trial.spec.hash] = trial
        self.take_reusable(new)
        left = {spec_hash: new[spec_hash] for spec_hash in new if spec_hash not in self.rows}
        self._started |= left.keys()
        return list(left.values())

    def take_reusable(self, trials: Mapping[str, PlannedTrial]) -> None:
        """Copy the rows of trials by spec hash that earlier searches have."""
        folders = {}
        for spec_hash in trials.keys() & self.reusable.keys():
            row = self.reusable[spec_hash]
            if row.plugins == plugins_of(trials[spec_hash].spec):
                folders[spec_hash] = row.folder
        definition = self.definition
        name = f"search {definition.method}"
        planned = list(trials.values())
        for file in copy_rows(folders, planned, self.out, definition.identity, name):
            self.read_rows(file)

    def collect(self, trial: Job) -> None:
        """Record the end of a Ray trial; without rows on disk it crashed."""
        if (self.out / "trials" / f"{trial.name}.parquet").exists():
            self.read_rows(trial.name)
        else:
            self.crashed |= dict.fromkeys(list_hashes(trial.trials), trial.name)

    def has_ended(self, suggestion: FrozenTrial, stage: int | None = None) -> bool:
        """Return whether every trial of a suggestion, or of a stage, has a row or crashed.

        The rows are the truth: a suggestion that the study has finished may have lost them.
        """
        if status_of(suggestion) == "crashed":
            return True
        hashes = (
            self.hashes(suggestion) if stage is None else self.hashes_by_stage(suggestion)[stage]
        )
        return all(h in self.rows or h in self.crashed for h in hashes)

    def list_ended(self) -> list[FrozenTrial]:
        """List the suggestions with a result in the study that have ended."""
        return list(filter(self.has_ended, self.study.suggestions(self.study.finished())))

    def count_left(self) -> int:
        """Count the suggestions to be made or to be repeated."""
        return self.planned - len(self.list_ended())

    def settle(
        self, suggestion: FrozenTrial, passed: int | None = None, rule: Race | Halving | None = None
    ) -> None:
        """Compute the result of a suggestion, and write it to the study once.

        ``passed``: the stages of one that the study has not finished; ``rule``: what ended it.
        """
        if suggestion.state.is_finished() or passed is None:
            passed = self.count_passed(suggestion)
        number, has_stages = suggestion.number, self.stages.count > 1
        stages = self.passed[number] = self.summarise(suggestion, passed)
        result = stages[-1]
        if not self.definition.halving:
            hashes = chain.from_iterable(self.hashes_by_stage(suggestion)[:passed])
            result = self.objective.summarise(list(map(self.rows.get, hashes)), self.baseline)
        is_early = passed < self.stages.count and result.status == "done"
        observed = None
        if rule is not None and (is_early or self.definition.halving):
            observed = rule.estimate(stages)
        if is_early:
            result = SuggestionResult("stopped" if self.definition.halving else "raced")
        self.results[number] = result
        # Optuna accepts no second result.
        if not suggestion.state.is_finished():
            self.study.write_result(number, result, observed, passed if has_stages else None)

    def summarise(self, suggestion: FrozenTrial, passed: int) -> list[SuggestionResult]:
        """Summarise the trials of each of the first stages of a suggestion."""
        results, stages = [], self.hashes_by_stage(suggestion)[:passed]
        for hashes, baseline in zip(stages, self.baselines, strict=False):
            results.append(self.objective.summarise(list(map(self.rows.get, hashes)), baseline))
        return results

    def build_rule(self, visible: Iterable[int]) -> Race | Halving:
        """Build the rule that ends suggestions, by the results of the visible ones."""
        results = {number: self.results[number] for number in visible}
        if self.definition.halving:
            return Halving(self.objective, self.definition.halving, self.compute_taus(results))
        return Race(self.objective, results, self.passed)

    def compute_taus(self, numbers: Iterable[int]) -> list[Tau]:
        """Compute how the ranks of the rungs agree over some suggestions."""
        passed = [self.passed[number] for number in numbers]
        return compute_taus(self.objective, passed, self.stages.count)

    def settle_ended(self) -> bool:
        """Compute the results of the finished suggestions; return whether none is open."""
        self.read_rows()
        ended = self.list_ended()
        self.results.clear()
        for suggestion in ended:
            self.settle(suggestion)
        return len(ended) == len(self.study.states())

    @property
    def baseline(self) -> Mapping[int, float]:
        return self.baselines[-1]

    @cached_property
    def baselines(self) -> list[Mapping[int, float]]:
        """Return the accuracy on ``select`` of the baseline, by stage and network seed."""
        return list(map(self._read_accuracies, self.stages.baselines))

    def _read_accuracies(self, baseline: Iterable[PlannedTrial]) -> Mapping[int, float]:
        accuracies = {}
        for trial in baseline:
            row = self.rows.get(trial.spec.hash)
            if row is None:
                problem = "has no result"
                if self.errors:
                    problem = f"crashed ({'; '.join(self.errors.values())})"
                raise UserError(
                    f"{self.out}: the baseline network {problem}; the guard needs its accuracy: "
                    f"mend the cause and run tune-calib resume {self.out}"
                )
            if row["status"] != "done":
                raise UserError(
                    f"the baseline network {row['status']}; the guard needs its accuracy: "
                    "change the network's settings (network.lr, ...) in a new `out`"
                )
            accuracies[trial.spec.network.seed] = row[column("select", "accuracy")]
        return accuracies

    def baseline_means(self, metrics: Iterable[str]) -> list[float]:
        rows = [self.rows[trial.spec.hash] for trial in self.candidates.baseline()]
        return compute_means(rows, metrics)

    def show(self, tracker: Tracker) -> None:
        metrics = ("accuracy", *self.objective.metrics)
        baseline = ", ".join(map(_format_metric, metrics, self.baseline_means(metrics)))
        best, number = "none within the guard yet", self.objective.choose(self.results)
        if number is not None:
            value = _format_metric(self.objective.metrics[0], self.results[number].values[0])
            best = f"best {value} (trial {number})"
        guard = f"{format_points(self.objective.guard)} of accuracy"
        notes = [f"so far: {best}", f"baseline: {baseline}; guard: a trial may lose {guard}"]
        ended = Counter(result.status for result in self.results.values())
        tracker.set(ended=dict(ended), notes=notes)


def _format_metric(name: str, value: float) -> str:
    return f"{METRICS[name].title} {format_value(name, value)}"


MIN_SHARE = 8  # heads of a batch that are trained together at least, if it has so many


def find_largest(definition: SearchDefinition, at_once: int) -> int:
    """Return how many heads of a batch are trained together at most."""
    # Every actor gets a share of a batch, unless the shares become too small; the numbers of a head
    # do not depend on its batch.
    stages = Stages(definition)
    trials = stages.batch_size * stages.sizes[0]
    share = ceil(trials / at_once)
    return min(MAX_HEAD_BATCH, max(MIN_SHARE, share))


@dataclass
class Batch:
    """Suggestions that pass the stages of a search together."""

    suggestions: Sequence[FrozenTrial]
    visible: Collection[int]  # numbers of the suggestions whose results its decisions read
    active: list[FrozenTrial]  # those that have reached the stage
    stage: int = 0
    rule: Race | Halving | None = None  # from the first decision on
    passed: dict[int, int] = field(default_factory=dict)  # stages by number


class StudySource:
    """Passes the suggestions of a study to an executor, and writes their results to the study.

    Batches of heads are suggested and settled in order, a fixed number of them at a time. The
    results behind a suggestion then do not depend on the speed of the actors, so that a search
    repeats to the last digit. One of networks does without Ray, where the number of jobs at once
    decides which results a suggestion sees; on Ray, it only does with one trial at a time.
    """

    at_once: int | None
    kinds: Mapping[str, int]

    def __init__(
        self,
        state: SearchState,
        provenance: Provenance,
        at_once: int,
        tracker: Tracker,
        is_ordered: bool = False,  # also if it trains networks
    ) -> None:
        self.tracker = tracker
        self.state, self.provenance, self.planned = state, provenance, state.planned
        definition, stages = state.definition, state.stages
        self.total, self.at_once = self.planned * sum(stages.sizes), at_once
        self.title = f"search {definition.method}"
        self.units, self.unit = self.planned, "suggestions"
        self.is_head = state.candidates.kind == "head"
        left = sum(map(mul, stages.sizes, stages.count_suggestions(state.count_left())))
        self.kinds = {"heads" if self.is_head else "networks": left}
        # Suggestions that are drawn together, and such batches that are open at the same time.
        self.size, self.lag = 1, inf
        if self.is_head or definition.halving:
            self.size = stages.batch_size
        if self.is_head:
            self.lag = definition.lag
        elif is_ordered:  # as few as keep all processes busy
            self.lag = ceil((at_once - 1) / (self.size * stages.sizes[0])) + 1
        self.is_ordered = self.is_head or is_ordered
        self.largest = find_largest(definition, at_once)
        self.suggested = 0
        self.queue: deque[Job] = deque()
        self.running: dict[str, Job] = {}
        self.open: list[Batch] = []  # batches without results

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, None to wait for others, or ``OVER``."""
        if self.state.deadline.is_over:
            return OVER
        while not self.queue:
            if len(self.open) >= self.lag:
                return None
            suggestions = self._draw()
            if not suggestions:
                return None if self.running else OVER  # further stages may follow
            visible: Collection[int] = range(self.suggested)
            if not self.is_head:
                visible = set(visible).difference(suggestions[0].user_attrs.get(HIDDEN, ()))
            self.suggested += len(suggestions)
            batch = Batch(suggestions, visible, active=[])
            if not all(s.state.is_finished() and self.state.has_ended(s) for s in suggestions):
                batch.active = list(suggestions)
                self._begin_stage(batch)
            self.open.append(batch)
            self._settle()
        job = self.running[trial_id] = self.queue.popleft()
        config = job.config()
        if self.provenance.replay:
            numbers = range(1 + max(trial.rung for trial in job.trials))
            config["points"] = [item.params for item in self.state.study.suggestions(numbers)]
        return configuration(self.provenance, config)

    def _draw(self) -> list[FrozenTrial]:
        """Return the suggestions of the next batch, of the study or new ones."""
        numbers = range(self.suggested, min(self.suggested + self.size, self.planned))
        first_hidden = None
        if self.is_ordered:
            # An extended search may have more results by now than one of this length had.
            first_hidden = max(0, self.suggested - int(self.lag - 1) * self.size)
        return self.state.study.suggestions(numbers, first_hidden)

    def _begin_stage(self, batch: Batch) -> None:
        """Queue the trials of the stage that a batch has reached, before those of later batches."""
        for suggestion in batch.active:
            batch.passed[suggestion.number] = batch.stage + 1
        left, jobs = self.state.start(batch.active, batch.stage), list[Job]()
        if self.is_head:
            for group in make_plan(left, set(), self.largest).head_batches:
                jobs.append(replace(group, title=format_suggestions(group.trials)))
        else:
            # Without a network id, since suggestions of a post-hoc method share their network.
            for trial in left:
                title = format_suggestions([trial])
                # A worker of heads trains their network too.
                prefix = "network" if trial.spec.head is None else "heads"
                jobs.append(Job(f"{prefix}-{trial.spec.hash}", (trial,), title=title))
        self.queue.extendleft(reversed(jobs))

    def end(self, trial_id: str) -> None:
        self.state.collect(self.running.pop(trial_id))
        if self._settle():
            self.state.show(self.tracker)

    def _settle(self) -> bool:
        """Settle the batches that have ended, in order if it is kept; tell if any has."""
        is_new = False
        for batch in list(self.open):
            self._advance(batch)
            if not batch.active and (not self.is_ordered or batch is self.open[0]):
                for suggestion in batch.suggestions:
                    passed = batch.passed.get(suggestion.number)
                    self.state.settle(suggestion, passed, batch.rule)
                self.open.remove(batch)
                is_new = True
        return is_new

    def _advance(self, batch: Batch) -> None:
        """Begin further stages of a batch whose trials have ended, until none is active."""
        state, stages = self.state, self.state.stages
        while batch.active and all(state.has_ended(s, batch.stage) for s in batch.active):
            if batch.stage + 1 == stages.count:
                batch.active = []
                return
            # After a loss of rows, those of earlier suggestions are awaited.
            if not state.results.keys() >= set(batch.visible):
                return
            batch.rule = batch.rule or state.build_rule(batch.visible)
            passed = {s.number: state.summarise(s, batch.stage + 1) for s in batch.active}
            selected = batch.rule.select(passed, len(batch.suggestions))
            batch.active = [
                s for s in batch.active if s.number in selected or stages.is_exempt(s.params)
            ]
            batch.stage += 1
            self._begin_stage(batch)
