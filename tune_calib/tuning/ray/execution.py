"""Execute a plan: networks first, heads as soon as their network is finished."""

import contextlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tune_calib.console import echo
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.machine import machine
from tune_calib.engine.store import Store
from tune_calib.paths import AnyPath, environment, parse_path
from tune_calib.results.tables import read_table
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.progress.tracker import TRIALS
from tune_calib.tuning.ray.executor import (
    OVER,
    Executor,
    Halving,
    Resources,
    configuration,
    show_phase,
)
from tune_calib.tuning.ray.plan import Plan, RayTrial
from tune_calib.tuning.ray.rows import Provenance


@contextlib.contextmanager
def open_executor(
    location: RunLocation, needs: Sequence[Resources], everywhere: Mapping[str, str]
) -> Iterator[Executor]:
    """Start the executor of a run, with variables for all of its trials, while the block runs."""
    if not location.uses_ray:
        from tune_calib.tuning.ray.in_process import in_process

        with in_process(everywhere) as executor:
            warn_of_other_machine(location.out)
            yield executor
        return

    from tune_calib.tuning.ray.ray_executor import RayExecutor
    from tune_calib.tuning.ray.session import list_machines, ray_session

    variables = environment(location.out, location.store)
    with ray_session(location.address, variables, needs, everywhere):
        warn_of_other_machine(location.out, list_machines if location.address else list_here)
        yield RayExecutor()


class PlanSource:
    """Hands out Ray trials that are ready, and those that wait for one of their networks."""

    at_once: int | None = None
    halving: Halving | None = None

    def __init__(self, plan: Plan, provenance: Provenance) -> None:
        self.total = len(plan.trials)
        self.provenance = provenance
        self.store = Store(parse_path(provenance.store))
        self.ready = deque(plan.networks)
        self.waiting: dict[str, list[RayTrial]] = {}
        for trial in plan.populations:
            self.waiting.setdefault(trial.network_id, []).append(trial)
        self.running: dict[str, RayTrial] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the next Ray trial; None while only networks are left that others wait for."""
        if not self.ready:
            is_last = not any(trial.kind == "network" for trial in self.running.values())
            return OVER if is_last else None
        trial = self.running[trial_id] = self.ready.popleft()
        return configuration(self.provenance, trial.config())

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Start the heads of a finished network, and never those of one that failed."""
        trial = self.running.pop(trial_id)
        if trial.kind == "network" and has_network(trial.first.spec, self.store):
            self.ready.extend(self.waiting.pop(trial.network_id, []))


def resources_of(trials: Sequence[RayTrial], gpus: float) -> list[Resources]:
    """List what the kinds of some Ray trials need."""
    kinds = {(each.threads, each.precision) for each in trials}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def execute(
    title: str, plan: Plan, executor: Executor, provenance: Provenance, gpus: float
) -> list[str]:
    """Execute a plan, with so many GPUs a trial; return a line for each Ray trial that crashed."""
    if not plan.trials:
        return []
    kinds = Counter[str]()
    for trial in plan.trials:
        kinds[f"{trial.kind}s"] += trial.weight
    total = sum(len(trial.trials) for trial in plan.trials)
    with show_phase(title, total, TRIALS, kinds, executor, provenance.channel):
        return executor.run(PlanSource(plan, provenance), provenance, gpus)


def list_here() -> list[dict[str, str | None]]:
    """Describe this machine, as ``session.list_machines`` describes those of a cluster."""
    return [machine()]


def warn_of_other_machine(
    out: AnyPath, list_machines: Callable[[], Sequence[Mapping[str, Any]]] = list_here
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
        differing.append(f"networks that an earlier version trained on {threads} threads")
    here = {_describe_machine(each) for each in list_machines()} if before else set()
    if others := sorted(before - here):
        names = " and ".join(sorted(here))
        differing.append(f"trials of {' and '.join(others)}, and this is {names}")
    for what in differing:
        echo(
            f"{out} holds {what}; new ones differ from them by about a point beside what the seeds "
            "do; network.portable makes them equal",
            err=True,
        )


def _describe_machine(about: Mapping[str, Any]) -> str:
    return f"{about['processor']} ({about['instruction_set']})"
