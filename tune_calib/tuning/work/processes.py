"""Execute jobs to their end, in this process or in others of this machine without Ray."""

import contextlib
import itertools
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from threadpoolctl import threadpool_limits

from tune_calib.errors import RefusedError
from tune_calib.progress import ProgressEvent, listening
from tune_calib.tuning.loggers.base import report_network
from tune_calib.tuning.work.executor import Source, show_begin, show_end
from tune_calib.tuning.work.worker import DONE, Worker
from tune_calib.tuning.work.workers import begin_job

Receive = Callable[[str, ProgressEvent], None]
"""A function that receives the name of a job and its latest event."""


class JobRunner:
    """Executes jobs one after the other in this process."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def run(self, config: dict[str, Any]) -> dict[str, Any] | str:
        """Execute a job to its end; return its last report, or the traceback of a crash."""
        result: dict[str, Any] = {}
        try:
            self._worker = begin_job(config, self._worker)
            while not result.get(DONE):
                result = self._worker.step()
                report_network(config["job"], result)
        except RefusedError:
            raise
        except Exception:
            # Not the error itself, whose frames keep objects of the trial alive, such as locks.
            error = traceback.format_exc()
            # A failed trial may have left anything behind.
            self.close()
            return error
        return result

    def close(self) -> None:
        """Free the resources of the last job."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cleanup()


class JobProcess:
    """Another process, which executes jobs one after the other."""

    def __init__(self) -> None:
        self.connection, other_end = Pipe()
        number = other_end.fileno()
        command = [sys.executable, "-c", f"from {__name__} import serve; serve({number})"]
        # In a session of its own, so that Ctrl-C interrupts the driver only.
        self._process = subprocess.Popen(command, pass_fds=[number], start_new_session=True)
        other_end.close()

    def begin(self, number: str, config: dict[str, Any]) -> None:
        """Begin a job, which has a number in its source."""
        self.number, self.job = number, config["job"]
        show_begin(self.job)
        with contextlib.suppress(OSError):  # a process that has died is noticed as it is read
            self.connection.send(config)

    def read(self) -> ProgressEvent | dict[str, Any] | str:
        """Read the next event or the last report of the job, or the traceback of a crash."""
        try:
            message: ProgressEvent | dict[str, Any] | str = self.connection.recv()
        except (EOFError, OSError):
            return f"its process ended with code {self._process.wait()}; is there enough memory?"
        if isinstance(message, RefusedError):
            raise message
        return message

    @property
    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, whatever it does."""
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
                driver.send(runner.run(driver.recv()))
            except RefusedError as error:
                driver.send(RefusedError(str(error)))


def run_in_processes(source: Source, count: int, receive: Receive) -> dict[str, str]:
    """Execute the jobs of a source in processes; return the traceback of each crash by job."""
    errors, numbers = dict[str, str](), map(str, itertools.count())
    with contextlib.ExitStack() as stack:
        idle, running = list[JobProcess](), dict[Any, JobProcess]()
        for _ in range(count):
            idle.append(stack.enter_context(contextlib.closing(JobProcess())))
        while True:
            while idle and isinstance(config := source.suggest(number := next(numbers)), dict):
                process = idle.pop()
                process.begin(number, config)
                running[process.connection] = process
            if not running:
                return errors
            for connection in wait(list(running)):
                process = running[connection]
                message = process.read()
                if isinstance(message, ProgressEvent):
                    receive(process.job["name"], message)
                    continue
                if isinstance(message, str):
                    errors[process.job["name"]] = message
                    show_end(process.job, None)
                else:
                    report_network(process.job, message)
                    show_end(process.job, message)
                source.end(process.number)
                del running[connection]
                if not process.is_alive:
                    process = stack.enter_context(contextlib.closing(JobProcess()))
                idle.append(process)
