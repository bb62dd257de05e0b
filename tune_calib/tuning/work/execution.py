"""Open the executor of a run, on Ray or in this process with the same workers; execute jobs."""

import contextlib
import json
import logging
import math
import os
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from tune_calib.console import echo
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.machine import count_cores, machine, memory_size, on_threads, set_cores
from tune_calib.files.paths import AnyPath, environment, parse_path
from tune_calib.files.store import Store
from tune_calib.progress import ProgressEvent, listening
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.progress.screen import screen
from tune_calib.tuning.progress.tracker import EVALUATIONS, TRIALS
from tune_calib.tuning.work.executor import (
    OVER,
    Executor,
    Resources,
    Source,
    configuration,
    report_crashes,
    show_begin,
    show_end,
)
from tune_calib.tuning.work.jobs import Job, RemainingWork
from tune_calib.tuning.work.processes import JobRunner, run_in_processes
from tune_calib.tuning.work.provenance import Provenance

# Work is counted in probabilities.
_TRIAL_OVERHEAD = 100_000  # takes as long as a trial without its probabilities
_MINUTE_OF_WORK = 200_000_000
# Most memory of a process.
_BYTES_PER_PROCESS = 10**9
_BYTES_PER_PROBABILITY = 50

# Changed by Ray, by Ray Tune and for them.
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_QUIETED = ("ray", "ray.tune", "ray._private.authentication")


@contextlib.contextmanager
def open_executor(
    location: RunLocation,
    needs: Sequence[Resources],
    everywhere: Mapping[str, str],
    provenance: Provenance,
) -> Iterator[Executor]:
    """Provide the executor of a run; ``everywhere`` are environment variables of all trials."""
    if not location.uses_ray:
        # On Ray a worker has as many BLAS threads as cores; here they would occupy all cores, and
        # spin while they wait.
        with restored_process(), threadpool_limits(1, user_api="blas"):
            os.environ.update(everywhere)
            executor = _InProcess(provenance, location.gpus)
            warn_of_other_machine(location.out)
            set_cores(count_cores())
            try:
                yield executor
            finally:
                set_cores(1)
                executor.close()
        return

    from tune_calib.tuning.ray.executor import RayExecutor
    from tune_calib.tuning.ray.session import list_machines, ray_session
    from tune_calib.tuning.ray.trainables import clear_events

    variables = environment(location.out, location.store)
    with ray_session(location.address, variables, needs, everywhere=everywhere):
        if location.address:
            warn_of_other_machine(location.out, list_machines)
        else:
            warn_of_other_machine(location.out)
        try:
            yield RayExecutor(provenance, location.gpus)
        finally:
            clear_events(provenance.channel)


class JobSource:
    """Passes on networks, and head batches when their network is trained, up to a deadline."""

    cores = 1  # of a pass over images

    def __init__(
        self, work: RemainingWork, provenance: Provenance, deadline: float = math.inf
    ) -> None:
        self.total = len(work.jobs)
        self.provenance, self.deadline = provenance, deadline
        self.store = Store(parse_path(provenance.store))
        self.ready = deque(work.networks)
        self.waiting: dict[str, list[Job]] = {}
        for job in work.head_batches:
            self.waiting.setdefault(job.network_id, []).append(job)
        self.running: dict[str, Job] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the next job, None while others wait for a network, or ``OVER``."""
        if time.monotonic() > self.deadline:
            return OVER
        if not self.ready:
            is_last = not any(job.kind == "network" for job in self.running.values())
            return OVER if is_last else None
        job = self.running[trial_id] = self.ready.popleft()
        config = job.config()
        if job.is_pass and self.cores > job.threads:
            config["cores"] = self.cores
        return configuration(self.provenance, config)

    def end(self, trial_id: str) -> None:
        """Make the heads of a finished network ready, but not those of one that failed."""
        job = self.running.pop(trial_id)
        if job.kind == "network" and has_network(job.first.spec, self.store):
            self.ready.extend(self.waiting.pop(job.network_id, []))


def resources_of(jobs: Iterable[Job], gpus: float) -> list[Resources]:
    """List the resources of each kind of job."""
    kinds = {(job.threads, job.first.spec.network.precision) for job in jobs}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def execute(
    title: str, work: RemainingWork, executor: Executor, deadline: float = math.inf
) -> list[str]:
    """Execute jobs, none of which starts after a deadline; return a line for each crash."""
    if not work.jobs or time.monotonic() > deadline:
        return []
    weights, total = Counter[str](), 0
    for job in work.jobs:
        weights[f"{job.kind}s"] += job.weight
        total += len(job.trials)
    unit = EVALUATIONS if work.jobs[0].kind == "extra" else TRIALS
    source = JobSource(work, executor.provenance, deadline)
    source.cores = executor.share_cores(len(work.networks))
    with (
        screen() as view,
        view.phase(title, total, unit, kinds=weights, read_events=executor.read_events),
    ):
        return list(executor.run(source).values())


class _InProcess(Executor):
    """Executes trials one by one in this process, or in others if imports take long."""

    def __init__(self, provenance: Provenance, gpus: float) -> None:
        super().__init__(provenance, gpus)
        self._runner = JobRunner()
        self._events: dict[str, ProgressEvent] = {}  # the latest of each job

    def run(self, source: Source, at_once: int | None = None) -> dict[str, str]:
        count = 0
        if isinstance(source, JobSource) and not self.gpus:  # not one CUDA context a process
            count = count_processes(source.ready)
        if count:
            errors = run_in_processes(source, count, self._events.__setitem__)
            return report_crashes(errors, self.provenance.out)
        errors = {}
        for number in map(str, range(source.total)):
            config = source.suggest(number)
            # No trial is running that others could wait for, so there are no more.
            if not isinstance(config, dict):
                break
            error = self.execute(config)
            source.end(number)
            if error is not None:
                errors[config["job"]["name"]] = error
        return report_crashes(errors, self.provenance.out)

    def read_events(self, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        return {name: self._events[name] for name in names if name in self._events}

    def execute(self, config: dict[str, Any]) -> str | None:
        """Execute a job to its end; return the traceback of a crash."""
        job, run = config["job"], config["run"]
        # All plug-ins of this process, which goes on using them.
        run = {**run, "plugins": list(map(Plugin.plain, plugins.in_use()))}
        show_begin(job)
        with listening(partial(self._events.__setitem__, job["name"])):
            result = self._runner.run({**config, "run": run})
        error = result if isinstance(result, str) else None
        show_end(job, None if isinstance(result, str) else result)
        return error

    def close(self) -> None:
        """Free the resources of the last job."""
        self._runner.close()


def count_processes(jobs: Collection[Job]) -> int:
    """Return how many processes evaluate imports of which all together take a minute or more.

    There are none for other jobs.
    """
    work, largest = 0, 1
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


@contextlib.contextmanager
def restored_process() -> Iterator[None]:
    """Give trials torch's defaults in the block; restore what they, Ray and libraries change."""
    variables, chance = dict(os.environ), (random.getstate(), np.random.get_state())
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    levels = {name: logging.getLogger(name).level for name in _QUIETED}
    dtype, mode = torch.get_default_dtype(), torch.get_deterministic_debug_mode()
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    precisions = matmul.fp32_precision, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    benchmark, gpus = cudnn.benchmark, range(0)
    if torch.cuda.is_initialized():
        gpus = range(torch.cuda.device_count())
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.random.fork_rng(list(gpus)),
            on_threads(torch.get_num_threads()),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_deterministic_debug_mode(mode)
        matmul.fp32_precision, cudnn.conv.fp32_precision = precisions  # type: ignore[attr-defined]
        cudnn.benchmark = benchmark
        random.setstate(chance[0])
        np.random.set_state(chance[1])
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number, handler in handlers.items():
                if handler is not None:  # of a library in C
                    signal.signal(number, handler)


def warn_of_other_machine(
    out: AnyPath, list_machines: Callable[[], Sequence[Mapping[str, Any]]] = lambda: [machine()]
) -> None:
    """Warn if the rows of a folder were computed on another kind of machine."""
    columns = ("processor", "instruction_set", "device", "network")
    machines = set[str]()
    for row in read_table(out, "trials", columns=columns).to_pylist():
        is_portable = json.loads(row["network"]).get("portable")
        if row["device"] == "cpu" and row["processor"] is not None and not is_portable:
            machines.add(_describe_machine(row))
    if not machines:
        return
    present = set(map(_describe_machine, list_machines()))
    if others := sorted(machines - present):
        echo(
            f"{out} contains trials of {' and '.join(others)}, but this machine is "
            f"{' and '.join(sorted(present))}; new trials differ from them by about a point in "
            "addition to the effect of seeds; network.portable makes them equal",
            err=True,
        )


def _describe_machine(row: Mapping[str, Any]) -> str:
    return f"{row['processor']} ({row['instruction_set']})"
