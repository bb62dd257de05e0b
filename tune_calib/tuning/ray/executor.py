"""Execute trials on Ray with Ray Tune, which reuses actors."""

import tempfile
import time
from collections import Counter, deque
from typing import Any, ClassVar

import ray
from ray import tune
from ray.tune.search import Searcher

from tune_calib.engine.machine import MOST_CHUNKS
from tune_calib.errors import RefusedError
from tune_calib.progress import report_progress
from tune_calib.tuning.ray.trainables import REFUSED, JobTrainable, read_events
from tune_calib.tuning.work.executor import Executor, Source, report_crashes
from tune_calib.tuning.work.jobs import JobSource

# Jobs per ``Tuner``, which keeps all trials until it ends, about 0.1 MiB each.
PART = 500
# Restarts of a Ray trial, from its checkpoint, after the death of its worker or node; Ray does not
# count preemptions.
MAX_FAILURES = 3
POLL_EVERY_S = 1.0  # for events of the workers


class RayExecutor(Executor):
    kind: ClassVar[type[tune.Trainable]] = JobTrainable

    def run(self, source: Source) -> dict[str, str]:
        report_progress("starting workers")
        if isinstance(source, JobSource) and source.passes and not self.provenance.gpus:
            # An equal share of the cluster, of as many cores as every node has.
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            counts = [int(node["CPU"]) for node in nodes if node.get("CPU")]
            source.cores = min(sum(counts) // source.passes, *counts, MOST_CHUNKS)
        search_alg, ended = _SourceSearcher(source), list[Exception | None]()
        while (part := min(PART, source.total + search_alg.repeats - len(ended))) > 0:
            results = self._tune(search_alg, part, source.at_once)
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
        return report_crashes(errors, self.provenance.out)

    def _tune(
        self, search_alg: "_SourceSearcher", part: int, at_once: int | None
    ) -> tune.ResultGrid:
        gpus = self.provenance.gpus  # otherwise Ray would pickle the executor

        def place(config: dict[str, Any]) -> tune.PlacementGroupFactory:
            cores = config["job"].get("cores", config["job"]["threads"])
            return tune.PlacementGroupFactory([{"CPU": cores, "GPU": gpus}])

        with tempfile.TemporaryDirectory() as scratch:
            tuner = tune.Tuner(
                tune.with_resources(self.kind, place),
                tune_config=tune.TuneConfig(
                    search_alg=search_alg,
                    num_samples=part,
                    reuse_actors=True,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                    max_concurrent_trials=at_once,
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=scratch,
                    verbose=0,
                    callbacks=[_Watcher(self, search_alg)],
                    failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                    checkpoint_config=tune.CheckpointConfig(
                        checkpoint_frequency=0, checkpoint_at_end=False
                    ),
                ),
            )
            return tuner.fit()


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

    polled = 0.0  # when events were read, on the monotonic clock

    def __init__(self, executor: Executor, searcher: _SourceSearcher) -> None:
        self.executor, self.searcher = executor, searcher
        # Each worker has at least one core, and more trials wait for a worker.
        self.most = int(ray.cluster_resources().get("CPU", 1))

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray pickles callbacks for a restore, which is not used

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        if self.searcher.failure is not None:
            raise self.searcher.failure
        counts = Counter(trial.status for trial in trials)
        running, pending = counts["RUNNING"], counts["PENDING"]
        report_progress("starting workers", running, min(pending + running, self.most))
        if time.monotonic() - self.polled > POLL_EVERY_S:
            self.polled, tracker = time.monotonic(), self.executor.context.view.tracker
            tracker.update(read_events(self.executor.provenance.channel, tracker.running))

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.executor.show_begin(trial.config["job"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        self.executor.show(trial.config["job"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.executor.show_end(trial.config["job"], trial.last_result)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        # Ray restarts no trial whose reused actor dies before the trial begins (Ray 2.59 and 2.60).
        if trial.should_recover():
            self.searcher.repeat(trial.trial_id, trial.config)
            return
        self.searcher.end(trial.trial_id)
        self.executor.show_end(trial.config["job"], None)
