"""The state of a search: its study, the rows of its trials, the results of its suggestions."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, inf
from typing import Any

from optuna.trial import FrozenTrial

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.selection import Row
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.text import format_points
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    SuggestionResult,
    compute_means,
    list_hashes,
)
from tune_calib.tuning.search.study import SearchStudy, status_of
from tune_calib.tuning.work.executor import OVER, Resources, configuration
from tune_calib.tuning.work.jobs import MAX_HEAD_BATCH, Job, format_suggestions, make_plan

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
    rows: dict[str, Row] = field(default_factory=dict)  # by spec hash
    crashed: dict[str, str] = field(default_factory=dict)  # names of Ray trials by spec hash
    errors: dict[str, str] = field(default_factory=dict)  # of Ray trials, by name
    results: dict[int, SuggestionResult] = field(default_factory=dict)  # by number
    _hashes: dict[int, list[str]] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

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
        return is_complete and self.rows.keys() >= set(list_hashes(self.candidates.baseline()))

    def read_rows(self, name: str = "*") -> None:
        table = read_table(self.out, "trials", name, columns=COLUMNS)
        hashes = table["spec_hash"].to_pylist()
        self.rows |= zip(hashes, table.drop_columns("spec_hash").to_pylist(), strict=True)

    def hashes(self, suggestion: FrozenTrial) -> list[str]:
        """Return the spec hashes of a suggestion, one for each pair of seeds."""
        number = suggestion.number
        if number not in self._hashes:
            self._hashes[number] = list_hashes(self.candidates.trials(suggestion.params, number))
        return self._hashes[number]

    def start(self, suggestions: Iterable[FrozenTrial]) -> list[PlannedTrial]:
        """Return the trials of suggestions without a row that were not started yet."""
        new: dict[str, PlannedTrial] = {}
        for suggestion in suggestions:
            for trial in self.candidates.trials(suggestion.params, suggestion.number):
                if trial.spec.hash not in self.rows and trial.spec.hash not in self._started:
                    new[trial.spec.hash] = trial
        self._started |= new.keys()
        return list(new.values())

    def collect(self, trial: Job) -> None:
        """Record the end of a Ray trial; without rows on disk it crashed."""
        if (self.out / "trials" / f"{trial.name}.parquet").exists():
            self.read_rows(trial.name)
        else:
            self.crashed |= dict.fromkeys(list_hashes(trial.trials), trial.name)

    def has_ended(self, suggestion: FrozenTrial) -> bool:
        """Return whether every trial of a suggestion has a row or crashed.

        The rows are the truth: a suggestion that the study has finished may have lost them.
        """
        if status_of(suggestion) == "crashed":
            return True
        return all(h in self.rows or h in self.crashed for h in self.hashes(suggestion))

    def list_ended(self) -> list[FrozenTrial]:
        """List the suggestions with a result in the study that have ended."""
        return list(filter(self.has_ended, self.study.suggestions(self.study.finished())))

    def count_left(self) -> int:
        """Count the suggestions to be made or to be repeated."""
        return self.planned - len(self.list_ended())

    def settle(self, suggestion: FrozenTrial) -> None:
        """Compute the result of a finished suggestion, and write it to the study once."""
        rows = list(map(self.rows.get, self.hashes(suggestion)))
        result = self.objective.summarise(rows, self.baseline)
        self.results[suggestion.number] = result
        # Optuna accepts no second result.
        if not suggestion.state.is_finished():
            self.study.write_result(suggestion.number, result)

    def settle_ended(self) -> bool:
        """Compute the results of the finished suggestions; return whether none is open."""
        self.read_rows()
        ended = self.list_ended()
        self.results.clear()
        for suggestion in ended:
            self.settle(suggestion)
        return len(ended) == len(self.study.states())

    @cached_property
    def baseline(self) -> Mapping[int, float]:
        """Return the accuracy on ``select`` of the baseline, by network seed."""
        accuracies = {}
        for trial in self.candidates.baseline():
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
    share = ceil(definition.population * len(definition.resolved.seeds.pairs()) / at_once)
    return min(MAX_HEAD_BATCH, max(MIN_SHARE, share))


class StudySource:
    """Passes the suggestions of a study to an executor, and writes their results to the study.

    Batches of heads are suggested and settled in order, a fixed number of them at a time. The
    results behind a suggestion then do not depend on the speed of the actors, so that a search
    repeats to the last digit; one of networks only does with one Ray trial at a time.
    """

    at_once: int | None
    kinds: Mapping[str, int]

    def __init__(
        self, state: SearchState, provenance: Provenance, at_once: int, tracker: Tracker
    ) -> None:
        self.tracker = tracker
        self.state, self.provenance, self.planned = state, provenance, state.planned
        definition, pairs = state.definition, len(state.definition.resolved.seeds.pairs())
        self.total, self.at_once = self.planned * pairs, at_once
        self.title = f"search {definition.method}"
        self.units, self.unit = self.planned, "suggestions"
        self.is_head = state.candidates.kind == "head"
        self.kinds = {"heads" if self.is_head else "networks": state.count_left() * pairs}
        # Suggestions that are drawn together, and such batches that are open at the same time.
        self.size, self.lag = 1, inf
        if self.is_head:
            self.size, self.lag = definition.population, definition.lag
        self.largest = find_largest(definition, at_once)
        self.suggested = 0
        self.queue: deque[Job] = deque()
        self.running: dict[str, Job] = {}
        self.open: list[list[FrozenTrial]] = []  # batches without results

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, None to wait for others, or ``OVER``."""
        while not self.queue:
            if len(self.open) >= self.lag:
                return None
            numbers = range(self.suggested, min(self.suggested + self.size, self.planned))
            first_hidden = None
            if self.is_head:
                # An extended search may have more results by now than one of this length had.
                first_hidden = max(0, self.suggested - (self.state.definition.lag - 1) * self.size)
            batch = self.state.study.suggestions(numbers, first_hidden)
            if not batch:
                return OVER
            self.suggested += len(batch)
            left = self.state.start(item for item in batch if not self.state.has_ended(item))
            if self.is_head:
                for group in make_plan(left, set(), self.largest).head_batches:
                    self.queue.append(replace(group, title=format_suggestions(group.trials)))
            else:
                # Without a network id, since suggestions of a post-hoc method share their network.
                for trial in left:
                    title = format_suggestions([trial])
                    # A worker of heads trains their network too.
                    prefix = "network" if trial.spec.head is None else "heads"
                    self.queue.append(Job(f"{prefix}-{trial.spec.hash}", (trial,), title=title))
            self.open.append(batch)
            self._settle()
        job = self.running[trial_id] = self.queue.popleft()
        config = job.config()
        if self.provenance.replay:
            numbers = range(1 + max(trial.rung for trial in job.trials))
            config["points"] = [item.params for item in self.state.study.suggestions(numbers)]
        return configuration(self.provenance, config)

    def end(self, trial_id: str) -> None:
        self.state.collect(self.running.pop(trial_id))
        if self._settle():
            self.state.show(self.tracker)

    def _settle(self) -> bool:
        """Settle the batches that have ended, of heads only in their order; tell if any has."""
        is_new = False
        for batch in list(self.open):
            if all(map(self.state.has_ended, batch)):
                for suggestion in batch:
                    self.state.settle(suggestion)
                self.open.remove(batch)
                is_new = True
            elif self.is_head:
                break
        return is_new
