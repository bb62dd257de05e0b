"""The state of a search: its study, the rows of its trials, the results of its suggestions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from optuna.trial import FrozenTrial

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.selection import Row
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.text import format_points
from tune_calib.tuning.folder import Deadline
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.reuse import Reusable, copy_rows
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    SuggestionResult,
    compute_means,
    list_hashes,
)
from tune_calib.tuning.search.rules import Halving, Race, compute_taus
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.study import PASSED, SearchStudy, status_of
from tune_calib.tuning.work.executor import Resources
from tune_calib.tuning.work.jobs import Job
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
    reusable: Reusable = field(default_factory=dict)
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
        return self.rows.keys() >= set(list_hashes(self.stages.all_baselines))

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
        self.take_reusable(list(new.values()))
        left = [trial for spec_hash, trial in new.items() if spec_hash not in self.rows]
        self._started.update(list_hashes(left))
        return left

    def take_reusable(self, trials: Sequence[PlannedTrial]) -> None:
        """Copy the rows of trials that earlier searches have."""
        folders = {}
        for spec in (trial.spec for trial in trials if trial.spec.hash in self.reusable):
            folder, plugins = self.reusable[spec.hash]
            if plugins == plugins_of(spec):
                folders[spec.hash] = folder
        identity, name = self.definition.identity, f"search {self.definition.method}"
        for file in copy_rows(folders, trials, self.out, identity, name):
            self.read_rows(file)

    def collect(self, trial: Job) -> None:
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
        hashes = self.hashes(suggestion)
        if stage is not None:
            hashes = self.hashes_by_stage(suggestion)[stage]
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
            result = self.objective.summarise(list(map(self.rows.get, hashes)), self.baselines[-1])
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
        results, stages = [], self.hashes_by_stage(suggestion)[:passed]
        for hashes, baseline in zip(stages, self.baselines, strict=False):
            results.append(self.objective.summarise(list(map(self.rows.get, hashes)), baseline))
        return results

    def build_rule(self, visible: Iterable[int]) -> Race | Halving:
        """Build the rule that ends suggestions, by the results of the visible ones."""
        if not self.definition.halving:
            results = {number: self.results[number] for number in visible}
            return Race(self.objective, results, self.passed)
        passed = [self.passed[number] for number in visible]
        taus = compute_taus(self.objective, passed, self.stages.count)
        return Halving(self.objective, self.definition.halving, taus)

    def settle_ended(self) -> bool:
        """Compute the results of the finished suggestions; return whether none is open."""
        self.read_rows()
        ended = self.list_ended()
        self.results.clear()
        for suggestion in ended:
            self.settle(suggestion)
        return len(ended) == len(self.study.states())

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
