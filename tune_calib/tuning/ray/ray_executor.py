"""Execute trials on Ray: with Ray Tune, which reuses actors, or with a pool of warm actors."""

import math
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from tune_calib.errors import RefusedError
from tune_calib.paths import parse_path
from tune_calib.progress import ProgressEvent, report_progress
from tune_calib.results.folders import refuse_moved
from tune_calib.tuning.loggers.base import report_network
from tune_calib.tuning.ray.channel import read_events, send_events
from tune_calib.tuning.ray.executor import (
    PART,
    Executor,
    Halving,
    Resources,
    TrialSource,
    configuration,
    report_crashes,
    show_begin,
    show_end,
)
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.spec_trainable import DONE
from tune_calib.tuning.ray.trainables import PlanTrainable
from tune_calib.tuning.ray.training import Worker

MAX_FAILURES = 3
"""Restarts of a Ray trial after the death of its worker or node; it continues from its checkpoint.
Ray does not count preemptions."""

WAIT_S = 0.2  # timeout of ray.wait, so that signals are handled promptly


class RayExecutor(Executor):
    """Executes trials on the Ray cluster that this process is connected to."""

    def run(
        self, source: TrialSource, at_once: int | None = None, halving: Halving | None = None
    ) -> list[str]:
        """Execute trials in parallel with Ray Tune."""
        report_progress("starting workers")
        gpus = self.gpus  # otherwise Ray would pickle the executor
        kind = tune.with_resources(
            PlanTrainable, lambda config: placement(Resources(config["work"]["threads"], gpus))
        )
        scheduler = halving and ASHAScheduler(
            time_attr="epoch",
            metric=halving.column,
            mode=halving.mode,
            # One more, since the step after the last epoch evaluates and writes the row.
            max_t=halving.epochs + 1,
            grace_period=1,
            reduction_factor=3,
        )
        further = {"scheduler": scheduler, "max_concurrent_trials": at_once}
        return fit(source.total, kind, self.provenance, source, **further)

    def pool(self, size: int, cpus: int) -> "Pool":
        """Start warm actors."""
        report_progress("starting workers")
        return Pool(size, Resources(cpus, self.gpus), self.provenance)

    def read_events(self, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """Read the events of the workers from the cluster."""
        return read_events(self.provenance.channel, names)


def placement(resources: Resources) -> tune.PlacementGroupFactory:
    """Convert resources for Ray Tune."""
    return tune.PlacementGroupFactory([{"CPU": resources.cpus, "GPU": resources.gpus}])


def fit(total: int, kind: Any, run: Provenance, source: TrialSource, **tuning: Any) -> list[str]:
    """Run at most ``total`` trials of a Trainable; ``tuning`` are arguments of ``TuneConfig``."""
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
    return report_crashes(errors, run.out)


class _SourceSearcher(Searcher):
    """A source of trials as a searcher of Ray Tune; it saves nothing, as to do = planned - done."""

    def __init__(self, source: TrialSource) -> None:
        super().__init__()
        self._source = source

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True  # the source knows its metric and its space

    def suggest(self, trial_id: str) -> Any:
        return self._source.suggest(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._source.on_trial_complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


class _Watcher(tune.Callback):
    """Reports events to screen and loggers, and ends a run whose folder was moved."""

    def __init__(self, run: Provenance) -> None:
        self.run, self._last = run, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray pickles callbacks for a restore, which is not used

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        # Once a second: Ray steps more often.
        if time.monotonic() - self._last >= 1:
            refuse_moved(parse_path(self.run.out), self.run.sweep)
            self._last = time.monotonic()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        show_begin(trial.config["work"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        report_network(trial.config["work"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        show_end(trial.config["work"], trial.last_result)  # also if a scheduler stopped it

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        show_end(trial.config["work"], None)


class _Worker(Worker):
    """An actor that executes whole trials."""

    def execute(self, config: dict[str, Any]) -> None:
        """Execute a trial, which writes its rows to disk."""
        send_events(config["run"]["channel"], config["work"]["name"])
        self.begin(config)
        while not self.step().get(DONE):
            pass


@dataclass
class Job:
    """A Ray trial, and the number of its actors that died."""

    trial: RayTrial
    failures: int = 0

    def begins_again(self, error: Exception) -> bool:
        """Return whether to try again; preempted nodes do not count as failures."""
        if not isinstance(error, RayActorError):
            return False
        self.failures += not error.preempted
        return self.failures <= MAX_FAILURES


class Pool:
    """A limited number of Ray actors; if one dies, it is replaced and its trial is run again."""

    def __init__(self, size: int, resources: Resources, provenance: Provenance) -> None:
        self._actor: Any = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus)(_Worker)
        self._run = provenance
        self._idle = [self._actor.remote() for _ in range(min(size, slots(resources)))]
        self._waiting: deque[Job] = deque()
        self._errors: list[Exception] = []
        self._running: dict[Any, tuple[Any, Job]] = {}

    def submit(self, trial: RayTrial) -> None:
        """Queue a Ray trial."""
        self._waiting.append(Job(trial))
        self._start()

    def _start(self) -> None:
        while self._waiting and self._idle:
            actor: Any = self._idle.pop()
            job = self._waiting.popleft()
            config = configuration(self._run, job.trial.config())
            show_begin(config["work"])
            self._running[actor.execute.remote(config)] = (actor, job)

    def wait(self) -> tuple[RayTrial, str | None]:
        """Wait for the next trial to end; also return its error if it crashed."""
        while True:
            over, _ = ray.wait(list(self._running), num_returns=1, timeout=WAIT_S)
            if not over:
                refuse_moved(parse_path(self._run.out), self._run.sweep)
                continue
            actor, job = self._running.pop(over[0])
            error: Exception | None = None
            try:
                ray.get(over[0])
            except Exception as raised:
                raise_refused(raised)
                error = raised
            show_end({"name": job.trial.name, "trials": ()}, {})
            if error is None:
                self._idle.append(actor)
                self._start()
                return job.trial, None
            # A failed trial may have left anything behind in its process.
            ray.kill(actor)
            self._idle.append(self._actor.remote())
            is_again = job.begins_again(error)
            if is_again:
                self._waiting.appendleft(job)
            self._start()
            if not is_again:
                self._errors.append(error)
                return job.trial, report_crashes(self._errors, self._run.out)[-1]


def slots(resources: Resources) -> int:
    """Return how many Ray trials fit on the cluster in parallel, at least 1."""
    there = ray.cluster_resources()
    counts = [int(there.get("CPU", 0) // resources.cpus)]
    if resources.gpus:
        counts.append(int(there.get("GPU", 0)) * resources.per_gpu)
    return max(1, min(counts))


def raise_refused(error: Exception) -> None:
    """Raise the error of a Ray trial that refused the whole run; ignore other errors."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RefusedError):
        raise error.cause from None
