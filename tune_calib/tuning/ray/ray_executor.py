"""Execute trials by Ray Tune: reused actors, no logger files, no console output."""

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from tune_calib.paths import parse_path
from tune_calib.progress import ProgressEvent, report_progress
from tune_calib.results.folders import refuse_moved
from tune_calib.tuning.loggers.follow import report_network
from tune_calib.tuning.ray.channel import clear_events, read_events
from tune_calib.tuning.ray.executor import (
    PART,
    Halving,
    Resources,
    TrialSource,
    write_tracebacks,
)
from tune_calib.tuning.ray.pool import MAX_FAILURES, Pool, raise_refused
from tune_calib.tuning.ray.progress import show_begin, show_crash, show_result
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.trainables import PlanTrainable


class RayExecutor:
    """Executes trials on the Ray that this process is connected to; see ``Executor``."""

    def run(
        self,
        source: TrialSource,
        total: int,
        provenance: Provenance,
        gpus: float,
        at_once: int | None = None,
        halving: Halving | None = None,
    ) -> list[Exception]:
        """Execute trials side by side."""
        report_progress("starting workers")
        kind = tune.with_resources(
            PlanTrainable, lambda config: placement(Resources(config["work"]["threads"], gpus))
        )
        scheduler = halving and ASHAScheduler(
            time_attr="epoch",
            metric=halving.column,
            mode=halving.mode,
            # One more than there are: the step behind the last epoch evaluates and writes the row.
            max_t=halving.epochs + 1,
            grace_period=1,
            reduction_factor=3,
        )
        return fit(
            total, kind, provenance, source, scheduler=scheduler, max_concurrent_trials=at_once
        )

    def pool(self, size: int, resources: Resources, provenance: Provenance) -> Pool:
        """Start warm actors."""
        report_progress("starting workers")
        return Pool(size, resources, provenance)

    def read_events(self, channel: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """Read the events of the workers from the cluster."""
        return read_events(channel, names)

    def clear_events(self, channel: str) -> None:
        """Remove the events from the cluster."""
        clear_events(channel)


def placement(resources: Resources) -> tune.PlacementGroupFactory:
    """Return the resources as Ray Tune takes them."""
    return tune.PlacementGroupFactory([{"CPU": resources.cpus, "GPU": resources.gpus}])


def fit(
    total: int, kind: Any, run: Provenance, source: TrialSource, **tuning: Any
) -> list[Exception]:
    """Run at most ``total`` trials of a Trainable; ``tuning`` are settings of ``TuneConfig``."""
    errors: list[Exception] = []
    search_alg = _SourceSearcher(source)
    for start in range(0, total, PART):
        part = min(PART, total - start)
        with tempfile.TemporaryDirectory() as scratch:
            tuner = tune.Tuner(
                kind,
                tune_config=tune.TuneConfig(
                    search_alg=search_alg,
                    num_samples=part,
                    reuse_actors=True,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                    **tuning,
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=scratch,
                    verbose=0,
                    callbacks=[_Watcher(run)],
                    failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                    checkpoint_config=tune.CheckpointConfig(
                        checkpoint_frequency=0, checkpoint_at_end=False
                    ),
                ),
            )
            results = tuner.fit()
        errors += results.errors
        if len(results) < part:
            break
    for error in errors:
        raise_refused(error)
    write_tracebacks(errors, run.out)
    return errors


class _SourceSearcher(Searcher):
    """A source of trials as Ray Tune takes it."""

    def __init__(self, source: TrialSource) -> None:
        super().__init__()
        self._source = source

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Accept anything: the source knows its metric and its space."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the next Ray trial."""
        return self._source.suggest(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on how it ended."""
        self._source.on_trial_complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: left to do is planned minus done."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, as above."""


class _Watcher(tune.Callback):
    """Reports to screen and loggers what happens, and ends a run whose folder was moved."""

    def __init__(self, run: Provenance) -> None:
        self.run, self._last = run, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        """Save nothing: Ray pickles its callbacks for a restore, which is not used."""
        return {}

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        """Check the folder once a second: Ray steps more often."""
        if time.monotonic() - self._last >= 1:
            refuse_moved(parse_path(self.run.out), self.run.sweep)
            self._last = time.monotonic()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Show that it begins."""
        show_begin(trial.config["work"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        """Send the epoch of a network to the loggers."""
        report_network(trial.config["work"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Show how it ended, by itself or by a scheduler."""
        show_result(trial.config["work"], trial.last_result)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Show that it crashed."""
        show_crash(trial.config["work"])
