"""Search of network and post-hoc methods: one Ray trial a spec, fed to an executor by the study."""

from collections import deque
from typing import Any

from tune_calib.engine.store import Store, artifact_manifest
from tune_calib.errors import DamagedFileError
from tune_calib.paths import parse_path, remove_folder
from tune_calib.results.columns import TableName
from tune_calib.results.tables import write_results
from tune_calib.spec.metrics import METRICS, column
from tune_calib.tuning.ray import titles
from tune_calib.tuning.ray.executor import OVER, Executor, Halving, configuration
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.rows import Provenance, TrialResult, curve_rows, trial_row
from tune_calib.tuning.search.ledger import Ledger
from tune_calib.tuning.search.study import Suggestion


class StudySearcher:
    """Hands the suggestions of the study to an executor, and tells the study how they ended.

    Its state is the study's: a new searcher on the same folder goes on where another was killed.

    Args:
        ledger: of the search.
        planned: number of suggestions.
        provenance: what its rows say of where they are from.
    """

    def __init__(self, ledger: Ledger, planned: int, provenance: Provenance) -> None:
        self.ledger = ledger
        self.planned = planned
        self.provenance = provenance
        self.asked = 0
        self.queue: deque[RayTrial] = deque()
        self.running: dict[str, RayTrial] = {}
        self.open: list[Suggestion] = []

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, or ``OVER``."""
        while not self.queue:
            if self.asked == self.planned or not self.ledger.study.has(self.asked):
                return OVER
            self._ask()
        self.running[trial_id] = self.queue.popleft()
        return configuration(self.provenance, self.running[trial_id].config())

    def _ask(self) -> None:
        suggestion = self.ledger.study.suggestion(self.asked)
        self.asked += 1
        if suggestion.is_finished:
            self.ledger.settle(suggestion)
            return
        left = self.ledger.to_start([suggestion])
        # Of its own name: suggestions of a post-hoc method share their network.
        self.queue.extend(
            RayTrial(f"network-{t.spec.hash}", (t,), title=titles.suggestions([t])) for t in left
        )
        self.open.append(suggestion)
        self._settle()

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Read the rows that the trial wrote; one that a scheduler stopped wrote none."""
        trial = self.running.pop(trial_id)
        is_written = (self.ledger.out / "trials" / f"{trial.name}.parquet").exists()
        if not error and result and not is_written:
            self._write_stopped(trial, result)
        self.ledger.collect(trial, "the trial's process failed" if error else None)
        self._settle()

    def _write_stopped(self, trial: RayTrial, result: dict[str, Any]) -> None:
        (planned,) = trial.trials
        folder = Store(parse_path(self.provenance.store)).folder(
            "checkpoints", planned.spec.network_id
        )
        try:
            history = artifact_manifest(folder)["history"]
        except DamagedFileError:
            history = []
        epoch = int(result["epoch"])
        stopped = TrialResult(
            "stopped", epoch, history[:epoch], f"by the scheduler after epoch {epoch}"
        )
        measured = {"wall_s": result["time_total_s"], "population": 1, "actor_resets": None}
        # Not of the driver, which did not train it.
        measured |= dict.fromkeys(("processor", "instruction_set", "gpu"))
        measured["threads"] = planned.spec.network.threads
        rows = [trial_row(planned, stopped, self.provenance, measured)]
        tables: dict[TableName, list[dict[str, Any]]] = {
            "trials": rows,
            "curves": curve_rows(planned, stopped),
        }
        write_results(self.ledger.out, trial.name, tables)
        remove_folder(folder)

    def _settle(self) -> None:
        over = [suggestion for suggestion in self.open if self.ledger.is_over(suggestion)]
        for suggestion in over:
            self.open.remove(suggestion)
            self.ledger.settle(suggestion)
        if over:
            self.ledger.show()


def search_networks(
    ledger: Ledger,
    planned: int,
    executor: Executor,
    provenance: Provenance,
    gpus: float,
    at_once: int,
    asha: bool,
) -> None:
    """Carry trials out until every suggestion has ended.

    Args:
        ledger: of the search.
        planned: number of suggestions.
        executor: carries them out.
        provenance: what its rows say of where they are from.
        gpus: of each trial.
        at_once: trials side by side; only one at a time repeats to the last digit.
        asha: stop trials that are behind at the same epoch.
    """
    searcher = StudySearcher(ledger, planned, provenance)
    first = ledger.candidates.trials({}, 0)
    metric = ledger.objective.metrics[0]
    halving = Halving(
        column("select", metric), METRICS[metric].direction, first[0].spec.network.epochs
    )
    executor.run(
        searcher, planned * len(first), provenance, gpus, at_once, halving if asha else None
    )
