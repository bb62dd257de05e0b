"""Warm Ray actors that execute one Ray trial after the other, for a driver that feeds them."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from tune_calib.errors import RefusedError
from tune_calib.paths import parse_path
from tune_calib.results.folders import refuse_moved
from tune_calib.tuning.ray.channel import send_events
from tune_calib.tuning.ray.executor import Resources, configuration, last_line, write_tracebacks
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.progress import show_begin, show_end
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.spec_trainable import DONE
from tune_calib.tuning.ray.worker import Worker

MAX_FAILURES = 3
"""How often a Ray trial is begun again after its worker or node died; it goes on from its own
checkpoint. Ray does not count preemptions."""

# ray.wait is left this often, so that a signal is handled at once.
WAIT_S = 0.2


class _Worker:
    """An actor that executes trials, each to its end."""

    def __init__(self) -> None:
        self.worker = Worker()

    def execute(self, config: dict[str, Any]) -> None:
        """Train, and leave the result rows on disk."""
        send_events(config["run"]["channel"], config["work"]["name"])
        self.worker.begin(config)
        while not self.worker.step().get(DONE):
            pass


@dataclass
class Job:
    """A Ray trial, and how often its actor died."""

    trial: RayTrial
    failures: int = 0

    def begins_again(self, error: Exception) -> bool:
        """Return whether to try once more; the loss of a preempted node does not count."""
        if not isinstance(error, RayActorError):
            return False
        self.failures += not error.preempted
        return self.failures <= MAX_FAILURES


class Pool:
    """At most ``size`` actors; one that dies is replaced, and its trial begins again.

    They end with the Ray session.
    """

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
        """Wait for the next trial to end; also return what it crashed of.

        What a trial refuses for all is raised, as is a folder that was moved.
        """
        while True:
            over, _ = ray.wait(list(self._running), num_returns=1, timeout=WAIT_S)
            if not over:
                refuse_moved(parse_path(self._run.out), self._run.sweep)
                continue
            actor, job = self._running.pop(over[0])
            error = _find_error(over[0])
            show_end(job.trial.config(), {})
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
                write_tracebacks(self._errors, self._run.out)
                return job.trial, last_line(error)


def slots(resources: Resources) -> int:
    """Return how many Ray trials of some resources run side by side on the cluster; at least 1."""
    there = ray.cluster_resources()
    counts = [int(there.get("CPU", 0) // resources.cpus)]
    if resources.gpus:
        counts.append(int(there.get("GPU", 0)) * resources.per_gpu)
    return max(1, min(counts))


def raise_refused(error: Exception) -> None:
    """Raise what a Ray trial refused for all of them; ignore other errors."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RefusedError):
        raise error.cause from None


def _find_error(reference: Any) -> Exception | None:
    try:
        ray.get(reference)
    except Exception as error:
        raise_refused(error)
        return error
    return None
