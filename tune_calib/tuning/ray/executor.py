"""Execute trials on Ray with Ray Tune, which reuses actors."""

import tempfile
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from tune_calib.engine.machine import MOST_CHUNKS
from tune_calib.errors import RefusedError
from tune_calib.progress import ProgressEvent, report_progress
from tune_calib.tuning.ray.trainables import REFUSED, JobTrainable, read_events
from tune_calib.tuning.work.executor import (
    Executor,
    Resources,
    Source,
    report_crashes,
)

# Jobs per ``Tuner``, which keeps all trials until it ends, about 0.1 MiB each.
PART = 500
# Restarts of a Ray trial, from its checkpoint, after the death of its worker or node; Ray does not
# count preemptions.
MAX_FAILURES = 3


class RayExecutor(Executor):
    """Executes trials on the Ray cluster that this process is connected to."""

    def run(self, source: Source, at_once: int | None = None) -> dict[str, str]:
        """Execute trials in parallel with Ray Tune."""
        report_progress("starting workers")
        gpus = self.gpus  # otherwise Ray would pickle the executor

        def place(config: dict[str, Any]) -> tune.PlacementGroupFactory:
            job = config["job"]
            return placement(Resources(job.get("cores", job["threads"]), gpus))

        kind = tune.with_resources(JobTrainable, place)
        return fit(source.total, kind, self, source=source, max_concurrent_trials=at_once)

    def share_cores(self, jobs: int) -> int:
        """Return an equal share of the cluster, of as many cores as every node has."""
        if self.gpus or not jobs:
            return 1
        counts = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        return min(sum(counts) // jobs, *filter(None, counts), MOST_CHUNKS)

    def read_events(self, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """Read the events of the workers from the cluster."""
        return read_events(self.provenance.channel, names)


def placement(resources: Resources) -> tune.PlacementGroupFactory:
    """Convert resources for Ray Tune."""
    return tune.PlacementGroupFactory([{"CPU": resources.cpus, "GPU": resources.gpus}])


def fit(total: int, kind: Any, executor: Executor, source: Source, **tuning: Any) -> dict[str, str]:
    """Run at most ``total`` trials of a Trainable; ``tuning`` are arguments of ``TuneConfig``."""
    ended: list[Exception | None] = []
    search_alg = _SourceSearcher(source)
    cores = int(ray.cluster_resources().get("CPU", 1))
    while (part := min(PART, total + search_alg.repeats - len(ended))) > 0:
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
                    callbacks=[_Watcher(executor, search_alg, cores)],
                    failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                    checkpoint_config=tune.CheckpointConfig(
                        checkpoint_frequency=0, checkpoint_at_end=False
                    ),
                ),
            )
            results = tuner.fit()
        if search_alg.failure is not None:
            raise search_alg.failure
        ended.extend(results[number].error for number in range(len(results)))
        if len(results) < part and not search_alg.to_repeat:
            break
    # In the order of their suggestion; of a repeated job the last end counts.
    errors: dict[str, Exception] = {}
    for name, error in zip(search_alg.names, ended, strict=False):
        errors.pop(name, None)
        if error is not None:
            errors[name] = error
    return report_crashes(errors, executor.provenance.out)


class _SourceSearcher(Searcher):
    """A source of trials as a searcher of Ray Tune; it saves nothing, as to do = planned - done.

    Ray Tune takes an exception of a searcher for the crash of a trial. The first one is kept here
    instead, and ends the run.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self.names: list[str] = []  # of the jobs that it has suggested
        self.to_repeat: deque[tuple[str, dict[str, Any]]] = deque()
        self.repeats = 0
        self._first_ids: dict[str, str] = {}  # of repeated jobs: the trials that the source knows
        self.failure: Exception | None = None

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True  # the source knows its metric and its space

    def suggest(self, trial_id: str) -> Any:
        if self.failure is not None:
            return None
        if self.to_repeat:
            self._first_ids[trial_id], config = self.to_repeat.popleft()
            self.names.append(config["job"]["name"])
            return config
        try:
            config = self._source.suggest(trial_id)
        except Exception as error:
            self.failure = error
            return None
        if isinstance(config, dict):
            self.names.append(config["job"]["name"])
        return config

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if not error:  # ``_Watcher`` reports errors
            self.end(trial_id, result)

    def end(self, trial_id: str, result: dict[str, Any] | None = None) -> None:
        """Tell the source the end of a trial; one that crashed has no result."""
        if self.failure is not None:
            return
        first_id = self._first_ids.pop(trial_id, trial_id)
        try:
            if result and REFUSED in result:
                raise RefusedError(result[REFUSED])
            self._source.end(first_id)
        except Exception as failure:
            self.failure = failure

    def repeat(self, trial_id: str, config: dict[str, Any]) -> None:
        """Suggest the job of a trial again, without telling the source."""
        self.to_repeat.append((self._first_ids.pop(trial_id, trial_id), config))
        self.repeats += 1

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray pickles searchers for a restore, which is not used

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


class _Watcher(tune.Callback):
    """Reports events to screen and loggers, and ends a run that failed."""

    def __init__(self, executor: Executor, searcher: _SourceSearcher, cores: int = 1) -> None:
        self.executor, self.searcher = executor, searcher
        self.most = cores  # each worker has at least one, and more trials wait for a worker

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray pickles callbacks for a restore, which is not used

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        if self.searcher.failure is not None:
            raise self.searcher.failure
        counts = Counter(trial.status for trial in trials)
        running, pending = counts["RUNNING"], counts["PENDING"]
        report_progress("starting workers", running, min(pending + running, self.most))

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.executor.show_begin(trial.config["job"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        self.executor.log_epoch(trial.config["job"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.executor.show_end(trial.config["job"], trial.last_result)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        # Ray restarts no trial whose reused actor dies before the trial begins (Ray 2.59 and 2.60).
        if trial.should_recover():
            self.searcher.repeat(trial.trial_id, trial.config)
            return
        self.searcher.end(trial.trial_id)
        self.executor.show_end(trial.config["job"], None)
