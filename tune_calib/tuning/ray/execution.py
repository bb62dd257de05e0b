"""Open the executor of a run, on Ray or in this process with the same worker; execute plans."""

import contextlib
import json
import math
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from tune_calib.console import echo
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.machine import machine
from tune_calib.engine.store import Store
from tune_calib.errors import RefusedError
from tune_calib.paths import AnyPath, environment, parse_path
from tune_calib.progress import ProgressEvent, listening
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.loggers.base import report_network
from tune_calib.tuning.progress.screen import screen
from tune_calib.tuning.progress.tracker import EVALUATIONS, TRIALS
from tune_calib.tuning.ray.executor import (
    OVER,
    Executor,
    Resources,
    TrialSource,
    configuration,
    report_crashes,
    show_begin,
    show_end,
)
from tune_calib.tuning.ray.plan import Plan, RayTrial
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.spec_trainable import DONE
from tune_calib.tuning.ray.training import Worker


@contextlib.contextmanager
def open_executor(
    location: RunLocation,
    needs: Sequence[Resources],
    everywhere: Mapping[str, str],
    provenance: Provenance,
) -> Iterator[Executor]:
    """Provide the executor of a run; ``everywhere`` are environment variables of all trials."""
    if not location.uses_ray:
        with _restored_process(everywhere):
            executor = _InProcess(provenance, location.gpus)
            warn_of_other_machine(location.out)
            try:
                yield executor
            finally:
                executor.worker.close()
        return

    from tune_calib.tuning.ray.ray_executor import RayExecutor
    from tune_calib.tuning.ray.session import list_machines, ray_session
    from tune_calib.tuning.ray.trainables import clear_events

    variables = environment(location.out, location.store)
    with ray_session(location.address, variables, needs, everywhere):
        warn_of_other_machine(location.out, *([list_machines] if location.address else []))
        try:
            yield RayExecutor(provenance, location.gpus)
        finally:
            clear_events(provenance.channel)


class PlanSource:
    """Passes on networks, and head batches when their network is trained."""

    def __init__(self, plan: Plan, provenance: Provenance) -> None:
        self.total = len(plan.trials)
        self.provenance = provenance
        self.store = Store(parse_path(provenance.store))
        self.ready = deque(plan.networks)
        self.waiting: dict[str, list[RayTrial]] = {}
        for trial in plan.head_batches:
            self.waiting.setdefault(trial.network_id, []).append(trial)
        self.running: dict[str, RayTrial] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the next Ray trial, None while others wait for a network, or ``OVER``."""
        if not self.ready:
            is_last = not any(trial.kind == "network" for trial in self.running.values())
            return OVER if is_last else None
        trial = self.running[trial_id] = self.ready.popleft()
        return configuration(self.provenance, trial.config())

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        """Make the heads of a finished network ready, but not those of one that failed."""
        trial = self.running.pop(trial_id)
        if trial.kind == "network" and has_network(trial.first.spec, self.store):
            self.ready.extend(self.waiting.pop(trial.network_id, []))


def resources_of(trials: Sequence[RayTrial], gpus: float) -> list[Resources]:
    """List the resources of each kind of Ray trials."""
    kinds = {(each.threads, each.first.spec.network.precision) for each in trials}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def execute(title: str, plan: Plan, executor: Executor) -> list[str]:
    """Execute a plan; return a line for each Ray trial that crashed."""
    if not plan.trials:
        return []
    kinds = Counter[str]()
    for trial in plan.trials:
        kinds[f"{trial.kind}s"] += trial.weight
    total = sum(len(trial.trials) for trial in plan.trials)
    unit = EVALUATIONS if plan.trials[0].kind == "extra" else TRIALS
    with screen() as own, own.phase(title, total, unit, kinds, executor.read_events):
        return list(executor.run(PlanSource(plan, executor.provenance)).values())


class _InProcess(Executor):
    """Executes trials one by one in this process."""

    def __init__(self, provenance: Provenance, gpus: float) -> None:
        super().__init__(provenance, gpus)
        self.worker = Worker()
        self._events: dict[str, ProgressEvent] = {}  # the latest, of the running trial

    def run(
        self, source: TrialSource, at_once: int | None = None, **halving: Any
    ) -> dict[str, str]:
        assert not halving, "only Ray stops networks"
        errors: dict[str, str] = {}
        for number in map(str, range(source.total)):
            config = source.suggest(number)
            # No trial is running that others could wait for, so there are no more.
            if not isinstance(config, dict):
                break
            result, error = self.execute(config)
            source.on_trial_complete(number, result, error is not None)
            if error is not None:
                errors[config["work"]["name"]] = error
        return report_crashes(errors, self.provenance.out)

    def read_events(self, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        return dict(self._events)

    def execute(self, config: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """Execute a trial to its end; return its last report, or the traceback of its crash."""
        work, run = config["work"], config["run"]
        # All plug-ins of this process, which goes on using them.
        run = {**run, "plugins": [plugin.plain() for plugin in plugins.in_use()]}
        checked, result = -math.inf, dict[str, Any]()

        def receive(event: ProgressEvent) -> None:
            self._events = {work["name"]: event}

        show_begin(work)
        try:
            with listening(receive):
                self.worker.begin({**config, "run": run})
                while not result.get(DONE):
                    if time.monotonic() - checked >= 1:
                        refuse_moved(parse_path(run["out"]), run["sweep"])
                        checked = time.monotonic()
                    result = self.worker.step()
                    report_network(work, result)
        except RefusedError:
            raise
        except Exception:
            # Not the error itself, whose frames keep objects of the trial alive, such as locks.
            error = traceback.format_exc()
            # A failed trial may have left anything behind.
            self.worker.close()
            show_end(work, None)
            return None, error
        show_end(work, result)
        return result, None


@contextlib.contextmanager
def _restored_process(everywhere: Mapping[str, str]) -> Iterator[None]:
    """Set variables in the block; restore the state of the process that trials change."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    is_strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    before = {name: os.environ.get(name) for name in everywhere}
    os.environ.update(everywhere)
    try:
        # On Ray a worker has as many BLAS threads as cores; here they would occupy all cores, and
        # spin while they wait.
        with threadpool_limits(1, user_api="blas"):
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


def warn_of_other_machine(
    out: AnyPath, list_machines: Callable[[], Sequence[Mapping[str, Any]]] = lambda: [machine()]
) -> None:
    """Warn if the rows of a folder were computed on another kind of machine."""
    columns = ("processor", "instruction_set", "threads", "device", "network", "head_method")
    before, counts = set[str](), set[int]()
    for row in read_table(out, "trials", columns=columns).to_pylist():
        slot = json.loads(row["network"])
        if row["device"] != "cpu" or slot.get("portable"):
            continue
        if row["processor"] is not None:
            before.add(_describe_machine(row))
        is_network = row["head_method"] is None and row["threads"] is not None
        if is_network and row["threads"] != int(slot.get("threads", 1)):
            counts.add(row["threads"])
    differing: list[str] = []
    if counts:
        threads = ", ".join(map(str, sorted(counts)))
        differing.append(f"networks that an earlier version trained with {threads} threads")
    here = {_describe_machine(each) for each in list_machines()} if before else set()
    if others := sorted(before - here):
        names = " and ".join(sorted(here))
        differing.append(f"trials of {' and '.join(others)}, but this machine is {names}")
    for what in differing:
        echo(
            f"{out} contains {what}; new trials differ from them by about a point in addition to "
            "the effect of seeds; network.portable makes them equal",
            err=True,
        )


def _describe_machine(about: Mapping[str, Any]) -> str:
    return f"{about['processor']} ({about['instruction_set']})"
