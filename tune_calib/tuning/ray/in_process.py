"""Execute trials in the driver's process, one after the other, without Ray.

The rows, files and messages are those of a run on Ray: both executors drive the same worker.
"""

import contextlib
import math
import os
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from tune_calib.errors import RefusedError
from tune_calib.paths import parse_path
from tune_calib.progress import ProgressEvent, listening
from tune_calib.results.folders import refuse_moved
from tune_calib.spec import plugins
from tune_calib.tuning.loggers.follow import report_network
from tune_calib.tuning.ray.executor import (
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
from tune_calib.tuning.ray.worker import Worker


class CrashedError(Exception):
    """A trial died; the text is its traceback."""


class InProcess:
    """Executes one trial after the other in this process; see ``Executor``."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._events: dict[str, ProgressEvent] = {}

    def run(self, source: TrialSource, provenance: Provenance, gpus: float) -> list[str]:
        """Execute trials one by one, whatever ``gpus`` and ``source.at_once`` say."""
        assert source.halving is None, "only Ray stops networks"
        errors: list[Exception] = []
        for number in map(str, range(source.total)):
            config = source.suggest(number)
            # Nothing runs that another could wait for: whoever hands nothing out is at the end.
            if not isinstance(config, dict):
                break
            result, error = self.execute(config)
            source.on_trial_complete(number, result, error is not None)
            errors += [error] if error is not None else []
        return report_crashes(errors, provenance.out)

    def pool(self, size: int, resources: Resources, provenance: Provenance) -> "InProcessPool":
        """Return a pool of one worker, whatever its size."""
        return InProcessPool(self, provenance)

    def read_events(self, channel: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """Return the latest event of the trial that runs."""
        return dict(self._events)

    def clear_events(self, channel: str) -> None:
        """Forget the last event."""
        self._events = {}

    def close(self) -> None:
        """Free what the last trial holds."""
        self._worker.close()

    def execute(self, config: dict[str, Any]) -> tuple[dict[str, Any] | None, Exception | None]:
        """Execute a trial to its end; return its last report, or what it died of."""
        work, run = config["work"], config["run"]
        # The plug-ins of the driver, which needs all of them.
        run = {**run, "plugins": [plugin.plain() for plugin in plugins.in_use()]}
        checked, result = -math.inf, dict[str, Any]()

        def receive(event: ProgressEvent) -> None:
            self._events = {work["name"]: event}

        show_begin(work)
        try:
            with listening(receive):
                self._worker.begin({**config, "run": run})
                while not result.get(DONE):
                    if time.monotonic() - checked >= 1:
                        refuse_moved(parse_path(run["out"]), run["sweep"])
                        checked = time.monotonic()
                    result = self._worker.step()
                    report_network(work, result)
        except RefusedError:
            raise
        except Exception:
            # Without the error itself, whose frames hold what the trial held, locks among it.
            error = CrashedError(traceback.format_exc())
            # It may have left anything behind.
            self._worker.close()
            show_end(work, None)
            return None, error
        show_end(work, result)
        return result, None


class InProcessPool:
    """Executes a population of heads when the driver waits for it."""

    def __init__(self, executor: InProcess, provenance: Provenance) -> None:
        self._executor, self._provenance = executor, provenance
        self._waiting: deque[RayTrial] = deque()
        self._errors: list[Exception] = []

    def submit(self, trial: RayTrial) -> None:
        """Queue a trial."""
        self._waiting.append(trial)

    def wait(self) -> tuple[RayTrial, str | None]:
        """Execute the next trial; also return what it crashed of."""
        trial = self._waiting.popleft()
        _, error = self._executor.execute(configuration(self._provenance, trial.config()))
        if error is None:
            return trial, None
        self._errors.append(error)
        return trial, report_crashes(self._errors, self._provenance.out)[-1]


@contextlib.contextmanager
def in_process(everywhere: Mapping[str, str]) -> Iterator[InProcess]:
    """Execute trials with some variables, and restore afterwards what they set for the process."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    is_strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    before = {name: os.environ.get(name) for name in everywhere}
    os.environ.update(everywhere)
    executor = InProcess()
    try:
        # Ray gives its workers as many threads of BLAS as cores; here they would take all cores,
        # and spin while they wait.
        with threadpool_limits(1, user_api="blas"):
            yield executor
    finally:
        executor.close()
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        torch.use_deterministic_algorithms(is_strict, warn_only=warns)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
