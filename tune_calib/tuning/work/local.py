"""Execute jobs without Ray: in this process, or in others of this machine."""

import contextlib
import itertools
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from threadpoolctl import threadpool_limits

from tune_calib.engine.machine import count_cores, memory_size, set_cores
from tune_calib.errors import RefusedError
from tune_calib.progress import listening
from tune_calib.spec import plugins
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.work.executor import DONE, Executor, Message, Source, is_last, report_crashes
from tune_calib.tuning.work.jobs import JobSource
from tune_calib.tuning.work.worker import Worker
from tune_calib.tuning.work.workers import begin_job

# Work is counted in probabilities.
_TRIAL_OVERHEAD = 100_000  # takes as long as a trial without its probabilities
_MINUTE_OF_WORK = 200_000_000
# Most memory of a process.
_BYTES_PER_PROCESS = 10**9
_BYTES_PER_PROBABILITY = 50


class LocalExecutor(Executor):
    """Executes jobs one by one in this process, or several at once in others."""

    def run(self, source: Source) -> dict[str, str]:
        self.errors = {}
        count = 0
        if not self.provenance.gpus:  # not one CUDA context each
            count = count_processes(source)
        if count:
            self._run_in_processes(source, count)
            return report_crashes(self.errors, self.provenance.out)
        with contextlib.closing(JobRunner()) as runner:
            # No trial is running that others could wait for, so without a job there are no more.
            while isinstance(config := source.suggest("1"), dict):
                # All plug-ins of this process, which goes on using them.
                run = {**config["run"], "plugins": list(map(Plugin.plain, plugins.in_use()))}
                self.show_begin(config["job"])
                receive = partial(self._receive, config["job"])
                with listening(receive):
                    for report in runner.run({**config, "run": run}):
                        receive(report)
                source.end("1")
        return report_crashes(self.errors, self.provenance.out)

    def _receive(self, job: dict[str, Any], message: Message) -> None:
        self.show(job, message)
        if is_last(message):
            self.show_end(job, message)

    def _run_in_processes(self, source: Source, count: int) -> None:
        numbers = map(str, itertools.count())
        with contextlib.ExitStack() as stack:
            idle, running = list[JobProcess](), dict[Any, tuple[JobProcess, str, dict[str, Any]]]()
            while True:
                while len(running) < count:
                    number = next(numbers)
                    config = source.suggest(number)
                    if not isinstance(config, dict):
                        break
                    if not idle:
                        idle.append(stack.enter_context(contextlib.closing(JobProcess())))
                    process = idle.pop()
                    self.show_begin(config["job"])
                    process.begin(config)
                    running[process.connection] = process, number, config["job"]
                if not running:
                    return
                for connection in wait(list(running)):
                    process, number, job = running[connection]
                    message = process.read()
                    self._receive(job, message)
                    if is_last(message):
                        source.end(number)
                        del running[connection]
                        if not process.has_ended:
                            idle.append(process)


class JobRunner:
    _worker: Worker | None = None

    def run(self, config: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
        """Execute a job; yield the report of each step, or the traceback of a crash."""
        report: dict[str, Any] = {}
        try:
            self._worker = begin_job(config, self._worker)
            while not report.get(DONE):
                report = self._worker.step()
                yield report
        except RefusedError:
            raise
        except Exception:
            # Not the error itself, whose frames keep objects of the trial alive, such as locks.
            error = traceback.format_exc()
            # A failed trial may have left anything behind.
            self.close()
            yield error

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cleanup()


class JobProcess:
    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self.connection, other_end = Pipe()
        number = other_end.fileno()
        command = [sys.executable, "-c", f"from {__name__} import serve; serve({number})"]
        # In a session of its own, so that Ctrl-C interrupts the driver only.
        self._process = subprocess.Popen(
            command,
            pass_fds=[number],
            start_new_session=True,
            env={**os.environ, **(variables or {})},
        )
        other_end.close()

    def begin(self, config: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a process that has died is noticed as it is read
            self.connection.send(config)

    def read(self) -> Message:
        """Read the next message about the job; raise what refuses the whole run."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            return f"its process ended with code {self._process.wait()}; is there enough memory?"
        if isinstance(message, RefusedError):
            raise message
        return message

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()


def serve(number: int) -> None:
    """Execute the jobs that the driver sends through a pipe, until the driver ends."""
    driver, runner = Connection(number), JobRunner()
    with (
        contextlib.suppress(EOFError, OSError),
        listening(driver.send),
        threadpool_limits(1, user_api="blas"),
    ):
        while True:
            try:
                config = driver.recv()
                set_cores(config["job"].get("cores", 1))
                for report in runner.run(config):
                    driver.send(report)
            except RefusedError as error:
                driver.send(RefusedError(str(error)))


def count_processes(source: Source) -> int:
    """Return how many processes execute the jobs of a source; 0: this one does.

    Several execute suggestions of a search, and imports if all together take a minute or more.
    """
    if not isinstance(source, JobSource):
        at_once = min(source.at_once or 1, count_cores(), memory_size() // _BYTES_PER_PROCESS)
        return at_once if at_once > 1 else 0
    work, largest, jobs = 0, 1, source.ready
    for job in jobs:
        record = job.first.spec.data.import_record
        if record is None:
            return 0
        size = (record.calib + record.test) * record.classes
        work, largest = work + len(job.trials) * (size + _TRIAL_OVERHEAD), max(largest, size)
    if work < _MINUTE_OF_WORK:
        return 0
    most = memory_size() // (_BYTES_PER_PROCESS + _BYTES_PER_PROBABILITY * largest)
    return max(1, min(count_cores(), len(jobs), most))
