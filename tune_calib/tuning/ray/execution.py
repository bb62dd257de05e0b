"""Execute a plan: networks first, heads as soon as their network is finished."""

import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.store import Store
from tune_calib.paths import environment, parse_path
from tune_calib.tuning.location import RunLocation
from tune_calib.tuning.progress.tracker import TRIALS
from tune_calib.tuning.ray.executor import OVER, Executor, Resources, configuration, last_line
from tune_calib.tuning.ray.plan import Plan, RayTrial
from tune_calib.tuning.ray.progress import show_phase
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.resumed import warn_of_other_machine


@contextlib.contextmanager
def open_executor(
    location: RunLocation, needs: Sequence[Resources], everywhere: Mapping[str, str]
) -> Iterator[Executor]:
    """Start the executor of a run, with variables for all of its trials, while the block runs."""
    if not location.uses_ray:
        from tune_calib.tuning.ray.in_process import in_process

        with in_process(everywhere) as executor:
            warn_of_other_machine(location.out, location.address)
            yield executor
        return

    from tune_calib.tuning.ray.ray_executor import RayExecutor
    from tune_calib.tuning.ray.session import ray_session

    with ray_session(
        location.address, environment(location.out, location.store), needs, everywhere
    ):
        warn_of_other_machine(location.out, location.address)
        yield RayExecutor()


class PlanSource:
    """Hands out Ray trials that are ready, and those that wait for one of their networks."""

    def __init__(
        self, ready: Sequence[RayTrial], waiting: Sequence[RayTrial], provenance: Provenance
    ) -> None:
        self.provenance = provenance
        self.store = Store(parse_path(provenance.store))
        self.ready = deque(ready)
        self.waiting: dict[str, list[RayTrial]] = {}
        for trial in waiting:
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


def resources_of(plan: Plan, gpus: float) -> list[Resources]:
    """List what the kinds of Ray trials of a plan need."""
    kinds = {(each.threads, each.precision) for each in (*plan.networks, *plan.populations)}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def execute(
    title: str, plan: Plan, executor: Executor, provenance: Provenance, gpus: float
) -> list[str]:
    """Execute a plan, with so many GPUs a trial; return a line for each Ray trial that crashed."""
    return _execute(title, plan.networks, plan.populations, executor, provenance, gpus)


def execute_extra(
    trials: Sequence[RayTrial], executor: Executor, provenance: Provenance, gpus: float
) -> list[str]:
    """Execute extra evaluations as ``execute`` does a plan."""
    return _execute("extra evaluations", trials, (), executor, provenance, gpus)


def _execute(
    title: str,
    ready: Sequence[RayTrial],
    waiting: Sequence[RayTrial],
    executor: Executor,
    provenance: Provenance,
    gpus: float,
) -> list[str]:
    trials = [*ready, *waiting]
    if not trials:
        return []
    kinds = Counter[str]()
    for trial in trials:
        kinds[f"{trial.kind}s"] += trial.weight
    total = sum(len(trial.trials) for trial in trials)
    with show_phase(title, total, TRIALS, kinds, executor, provenance.channel):
        source = PlanSource(ready, waiting, provenance)
        errors = executor.run(source, len(trials), provenance, gpus)
    return [last_line(error) for error in errors]
