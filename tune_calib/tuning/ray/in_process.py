"""Carrying trials out in the driver's process, one after the other, without Ray.

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
    Feed,
    Halving,
    Resources,
    configuration,
    keep_tracebacks,
    last_line,
)
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.progress import begun, crashed, ended, statuses_of
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.spec_trainable import DONE
from tune_calib.tuning.ray.worker import Worker


class CrashedError(Exception):
    """A trial died; the text is its traceback."""


class InProcess:
    """Carries one trial out after the other in this process."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._doing: tuple[str, ProgressEvent] | None = None

    def run(
        self,
        feed: Feed,
        total: int,
        provenance: Provenance,
        gpus: float,
        at_once: int | None = None,
        halving: Halving | None = None,
    ) -> list[Exception]:
        """As ``Executor.run``; ``gpus`` and ``at_once`` have no meaning for one trial at a time."""
        assert halving is None, "only Ray stops networks"
        errors: list[Exception] = []
        for number in map(str, range(total)):
            config = feed.suggest(number)
            # Nothing runs that another could wait for: whoever hands nothing out is at the end.
            if not isinstance(config, dict):
                break
            result, error = self.carry_out(config)
            feed.on_trial_complete(number, result, error is not None)
            errors += [error] if error is not None else []
        keep_tracebacks(errors, provenance.out)
        return errors

    def pool(self, size: int, resources: Resources, provenance: Provenance) -> "Queue":
        """As ``Executor.pool``; it has one worker, whatever its size."""
        return Queue(self, provenance)

    def told(self, board: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """What the trial that runs does."""
        return dict([doing]) if (doing := self._doing) is not None else {}

    def forget(self, board: str) -> None:
        """Forget what the last trial said."""
        self._doing = None

    def close(self) -> None:
        """Free what the last trial holds."""
        self._worker.close()

    def carry_out(self, config: dict[str, Any]) -> tuple[dict[str, Any] | None, Exception | None]:
        """Carry a trial out to its end.

        Args:
            config: of it, as a worker is given it.

        Returns:
            What it reported last, or what it died of.

        Raises:
            RefusedError: it refused to go on, for all, or the folder was moved.
        """
        work = config["work"]
        # Those of the driver, which has use for all of them.
        used = [plugin.plain() for plugin in plugins.in_use()]
        begun(work)
        try:
            with listening(lambda activity: self._hear(work["name"], activity)):
                result = self._to_the_end({**config, "run": {**config["run"], "plugins": used}})
        except RefusedError:
            raise
        except Exception:
            # Without the error itself, whose frames hold what the trial held, locks among it.
            error = CrashedError(traceback.format_exc())
            # It may have left anything behind.
            self._worker.close()
            crashed(work)
            return None, error
        ended(work, statuses_of(work, result))
        return result, None

    def _to_the_end(self, config: dict[str, Any]) -> dict[str, Any]:
        out, sweep = parse_path(config["run"]["out"]), config["run"]["sweep"]
        looked, result = -math.inf, dict[str, Any]()
        self._worker.take_up(config)
        while not result.get(DONE):
            if time.monotonic() - looked >= 1:
                refuse_moved(out, sweep)
                looked = time.monotonic()
            result = self._worker.step()
            report_network(config["work"], result)
        return result

    def _hear(self, name: str, activity: ProgressEvent) -> None:
        self._doing = name, activity


class Queue:
    """Populations of heads that are carried out when somebody waits for them.

    Args:
        executor: carries them out.
        provenance: what their rows say of where they are from.
    """

    def __init__(self, executor: InProcess, provenance: Provenance) -> None:
        self._executor, self._provenance = executor, provenance
        self._waiting: deque[RayTrial] = deque()
        self._errors: list[Exception] = []

    def submit(self, trial: RayTrial) -> None:
        """Queue a trial."""
        self._waiting.append(trial)

    def wait(self) -> tuple[RayTrial, str | None]:
        """Carry out the next trial; also returns what it crashed of."""
        trial = self._waiting.popleft()
        _, error = self._executor.carry_out(configuration(self._provenance, trial.config()))
        if error is None:
            return trial, None
        self._errors.append(error)
        keep_tracebacks(self._errors, self._provenance.out)
        return trial, last_line(error)


@contextlib.contextmanager
def in_process(everywhere: Mapping[str, str]) -> Iterator[InProcess]:
    """Carry trials out in this process while the block runs.

    What they set for the whole process is as before at the end.

    Args:
        everywhere: variables that all trials are given.
    """
    executor = InProcess()
    # Ray gives its workers as many threads of BLAS as cores; here they would take all cores, and
    # spin while they wait.
    with _process_as_before(everywhere), threadpool_limits(1, user_api="blas"):
        try:
            yield executor
        finally:
            executor.close()


@contextlib.contextmanager
def _process_as_before(everywhere: Mapping[str, str]) -> Iterator[None]:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    is_strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    before = {name: os.environ.get(name) for name in everywhere}
    os.environ.update(everywhere)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        torch.use_deterministic_algorithms(is_strict, warn_only=warns)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
