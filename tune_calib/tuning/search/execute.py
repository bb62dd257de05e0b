"""Execute suggestions: heads in batches, networks and post-hoc transforms one by one.

Batches of heads are suggested, trained and settled in order, a fixed number of them at a time. The
results behind a suggestion then do not depend on the speed of the actors, so that a search repeats
to the last digit.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tune_calib.engine.store import Store, artifact_manifest
from tune_calib.errors import DamagedFileError
from tune_calib.paths import parse_path, remove_folder
from tune_calib.results.columns import TableName
from tune_calib.results.tables import write_results
from tune_calib.spec.metrics import METRICS, column
from tune_calib.tuning.ray.executor import OVER, Executor, Halving, Pool, configuration
from tune_calib.tuning.ray.plan import RayTrial, format_suggestions, make_plan
from tune_calib.tuning.ray.rows import Provenance, TrialResult, curve_rows, trial_row
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.study import Suggestion


def execute_heads(state: SearchState, pool: Pool, largest: int) -> None:
    """Train heads, at most ``largest`` per Ray trial, until every suggestion has ended."""
    planned, population, lag = state.planned, state.definition.population, state.definition.lag
    open_batches: deque[list[Suggestion]] = deque()
    for start in range(0, planned, population):
        if len(open_batches) == lag:
            _finish(open_batches.popleft(), state, pool)
        numbers = range(start, min(start + population, planned))
        # The results that a search of this length knows here; an extended one may have more.
        known = max(0, start - (lag - 1) * population)
        batch = state.study.suggestions(numbers, known)
        left = state.start(suggestion for suggestion in batch if not suggestion.is_finished)
        for trial in make_plan(left, set(), largest).populations:
            pool.submit(replace(trial, title=format_suggestions(trial.trials)))
        open_batches.append(batch)
    while open_batches:
        _finish(open_batches.popleft(), state, pool)


def _finish(batch: Sequence[Suggestion], state: SearchState, pool: Pool) -> None:
    for suggestion in batch:
        while not (suggestion.is_finished or state.has_ended(suggestion)):
            state.collect(*pool.wait())
        state.settle(suggestion)
    state.show()


def execute_networks(state: SearchState, executor: Executor, at_once: int) -> None:
    """Execute a Ray trial per spec; the search repeats to the last digit only one at a time."""
    first = state.candidates.trials({}, 0)
    metric = state.objective.metrics[0]
    halving = None
    if state.definition.scheduler == "asha":
        epochs = first[0].spec.network.epochs
        halving = Halving(column("select", metric), METRICS[metric].direction, epochs)
    executor.run(StudySource(state, executor.provenance), at_once, halving)


class StudySource:
    """Passes the suggestions of a study to an executor, and writes their results to the study."""

    def __init__(self, state: SearchState, provenance: Provenance) -> None:
        self.state = state
        self.planned, self.provenance = state.planned, provenance
        self.total = state.planned * len(state.candidates.trials({}, 0))
        self.suggested = 0
        self.queue: deque[RayTrial] = deque()
        self.running: dict[str, RayTrial] = {}
        self.open: list[Suggestion] = []

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, or ``OVER``."""
        while not self.queue:
            numbers = range(self.suggested, self.planned)[:1]
            batch = self.state.study.suggestions(numbers)
            if not batch:
                return OVER
            self._queue_suggestion(batch[0])
        self.running[trial_id] = self.queue.popleft()
        return configuration(self.provenance, self.running[trial_id].config())

    def _queue_suggestion(self, suggestion: Suggestion) -> None:
        self.suggested += 1
        if suggestion.is_finished:
            self.state.settle(suggestion)
            return
        left = self.state.start([suggestion])
        # The name contains no network id: suggestions of a post-hoc method share their network.
        self.queue.extend(
            RayTrial(f"network-{t.spec.hash}", (t,), title=format_suggestions([t])) for t in left
        )
        self.open.append(suggestion)
        self._settle()

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Read the rows of a trial; write those of one that a scheduler stopped."""
        trial = self.running.pop(trial_id)
        is_written = (self.state.out / "trials" / f"{trial.name}.parquet").exists()
        if not error and result and not is_written:
            self._write_stopped(trial, result)
        self.state.collect(trial, "the process of the trial failed" if error else None)
        self._settle()

    def _write_stopped(self, trial: RayTrial, result: dict[str, Any]) -> None:
        (planned,) = trial.trials
        store = Store(parse_path(self.provenance.store))
        folder = store.folder("checkpoints", planned.spec.network_id)
        try:
            history = artifact_manifest(folder)["history"]
        except DamagedFileError:
            history = []
        epoch = int(result["epoch"])
        stopped = TrialResult(
            "stopped", epoch, history[:epoch], f"the scheduler stopped it after epoch {epoch}"
        )
        measured = {"wall_s": result["time_total_s"], "population": 1, "actor_resets": None}
        # The machine of the driver did not train it.
        measured |= dict.fromkeys(("processor", "instruction_set", "gpu"))
        measured["threads"] = planned.spec.network.threads
        tables: dict[TableName, list[dict[str, Any]]] = {
            "trials": [trial_row(planned, stopped, self.provenance, measured)],
            "curves": curve_rows(planned, stopped),
        }
        write_results(self.state.out, trial.name, tables)
        remove_folder(folder)

    def _settle(self) -> None:
        ended = [suggestion for suggestion in self.open if self.state.has_ended(suggestion)]
        for suggestion in ended:
            self.open.remove(suggestion)
            self.state.settle(suggestion)
        if ended:
            self.state.show()
