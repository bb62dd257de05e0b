"""Share the jobs of a run among processes on one file system, without Ray.

The process that holds the lock of the run folder is the driver. It publishes each job as a file,
``jobs/NAME.job``. Every process, the driver too, leases jobs: it renames the file, which only one
can do, to ``NAME.ID.lease``, touches it as long as it executes the job, writes the result rows, and
then ``NAME.end``. The driver publishes a job again if its lease is no longer touched.

If the driver ends, another process takes the lock and continues the run from its rows and its
study, as after a kill. Two processes that execute the same job write the same rows.
"""

import contextlib
import itertools
import json
import math
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tune_calib.console import echo
from tune_calib.engine.machine import MOST_CHUNKS, count_cores
from tune_calib.errors import RefusedError
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.progress import report_progress
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import JOBS, Provenance, RunLocation, only_driver
from tune_calib.tuning.work.executor import Executor, Message, Source, is_last, report_crashes
from tune_calib.tuning.work.jobs import JobSource
from tune_calib.tuning.work.local import JobProcess

POLL_S = 1.0
TOUCH_S = 15.0  # between touches of a lease
EXPIRED_S = 240.0  # without one, of which NFS may hide the last 60 s from other machines
MAX_LOST = 3  # leases of a job that expire, after which it counts as crashed

Show = Callable[[dict[str, Any], Message], None]


class JobFiles:
    def __init__(self, out: AnyPath) -> None:
        self.folder = Path(str(out)) / JOBS

    def publish(self, config: Mapping[str, Any]) -> None:
        """Publish a job, unless a process that leased it from an earlier driver executes it."""
        name = config["job"]["name"]
        if name not in map(name_of, self.folder.glob("*.lease")):
            atomic_write(self.folder / f"{name}.job", json.dumps(config).encode())

    def take(self) -> Path | None:
        """Lease a job; return the file of the lease, or None if there is no job."""
        for job in sorted(self.folder.glob("*.job")):
            lease = job.with_suffix(f".{uuid.uuid4().hex}.lease")
            # Another process may be faster.
            with contextlib.suppress(FileNotFoundError):
                os.utime(job)  # renaming keeps the time
                return job.rename(lease)
        return None

    def give_back(self, lease: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            lease.rename(self.folder / f"{name_of(lease)}.job")

    def end(self, lease: Path, report: Message | RefusedError) -> None:
        """Write the last report of a job, or the reason of its failure; remove its lease."""
        if not lease.exists():  # it has expired, and the job has been published again
            return
        kind = "refused" if isinstance(report, RefusedError) else "report"
        content = {kind: report if isinstance(report, dict) else str(report)}
        atomic_write(self.folder / f"{name_of(lease)}.end", json.dumps(content).encode())
        lease.unlink(missing_ok=True)

    def collect_ends(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the names and reports of the jobs that have ended, and remove their files."""
        for end in sorted(self.folder.glob("*.end")):
            content = json.loads(end.read_bytes())
            end.unlink()
            yield end.name.removesuffix(".end"), content

    def find_expired(self) -> list[Path]:
        clock = self.folder / "clock"
        clock.touch()  # by the clock of the file system, as leases
        limit, expired = clock.stat().st_mtime - EXPIRED_S, []
        for lease in self.folder.glob("*.lease"):
            with contextlib.suppress(FileNotFoundError):
                if lease.stat().st_mtime < limit:
                    expired.append(lease)
        return expired

    def clear(self) -> None:
        for path in [*self.folder.glob("*.job"), *self.folder.glob("*.end")]:
            path.unlink(missing_ok=True)


def name_of(lease: Path) -> str:
    return lease.name.rsplit(".", 2)[0]


class JobWorker:
    """Leases and executes jobs, one at a time, in a process that it starts."""

    def __init__(self, files: JobFiles, variables: Mapping[str, str], show: Show) -> None:
        self.files, self.variables, self.show = files, variables, show
        self._process: JobProcess | None = None
        self._lease: Path | None = None
        self._job: dict[str, Any] = {}
        self._touched = 0.0  # on the monotonic clock

    def work(self) -> None:
        """Execute a job to its end, or wait a moment if there is none."""
        self.turn()
        while self._lease is not None:
            self.turn()

    def turn(self) -> None:
        """Begin a job if none is running, and follow it for a moment."""
        if self._lease is None:
            self._lease = self.files.take()
            if self._lease is None:
                time.sleep(POLL_S)
                return
            config = json.loads(self._lease.read_bytes())
            self._job, self._touched = config["job"], time.monotonic()
            if self._process is None or self._process.has_ended:
                self._process = JobProcess(self.variables)
            self._process.begin(config)
        assert self._process is not None
        until = time.monotonic() + POLL_S
        if time.monotonic() - self._touched > TOUCH_S:
            self._touched = time.monotonic()
            with contextlib.suppress(FileNotFoundError):  # it has expired
                os.utime(self._lease)
        while wait([self._process.connection], max(0.0, until - time.monotonic())):
            try:
                message = self._process.read()
            except RefusedError as error:
                self.files.end(self._lease, error)
                raise
            self.show(self._job, message)
            if is_last(message):
                self.files.end(self._lease, message)
                self._lease = None
                return

    def close(self) -> None:
        if self._lease is not None:
            self.files.give_back(self._lease)
        if self._process is not None:
            self._process.close()


class SharedExecutor(Executor):
    """Publishes jobs in the run folder, and executes those that it leases, as others do."""

    def __init__(
        self, provenance: Provenance, context: Context, variables: Mapping[str, str]
    ) -> None:
        super().__init__(provenance, context)
        self.files, self.variables = JobFiles(Path(provenance.out)), variables
        self.files.clear()

    def run(self, source: Source) -> dict[str, str]:
        if isinstance(source, JobSource):
            source.cores = min(count_cores(), MOST_CHUNKS)  # for passes over images
        at_once, numbers = source.at_once or math.inf, map(str, itertools.count())
        running, lost = dict[str, tuple[str, dict[str, Any]]](), Counter[str]()
        self.errors = {}
        worker = JobWorker(self.files, self.variables, self.show)
        with contextlib.closing(worker):
            while True:
                while len(running) < at_once:
                    number = next(numbers)
                    config = source.suggest(number)
                    if not isinstance(config, dict):
                        break
                    self.show_begin(config["job"])
                    self.files.publish(config)
                    running[config["job"]["name"]] = number, config["job"]
                if not running:
                    break
                worker.turn()
                for lease in self.files.find_expired():
                    lost[name_of(lease)] += 1
                    if lost[name_of(lease)] < MAX_LOST:
                        self.files.give_back(lease)
                    else:
                        self.files.end(lease, f"{MAX_LOST} processes were lost with it")
                for name, content in self.files.collect_ends():
                    if name not in running:  # of an earlier session
                        continue
                    if "refused" in content:
                        raise RefusedError(content["refused"])
                    number, job = running.pop(name)
                    self.show_end(job, content["report"])
                    source.end(number)
        shutil.rmtree(self.files.folder, ignore_errors=True)
        return report_crashes(self.errors, self.provenance.out)


@contextlib.contextmanager
def driving_or_working(location: RunLocation, variables: Mapping[str, str]) -> Iterator[None]:
    """Hold the lock of a run; execute its jobs as long as another process holds a shared one."""
    if not location.is_shared:
        with only_driver(location.out):
            yield
        return
    echo(f"this process shares the trials of {location.out} with others", err=True)
    files = JobFiles(location.out)
    with contextlib.ExitStack() as stack:
        worker = JobWorker(files, variables, lambda job, _: report_progress(job["title"]))
        with contextlib.closing(worker):
            stack.enter_context(only_driver(location.out, meanwhile=worker.work))
        yield
