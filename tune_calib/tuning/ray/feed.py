"""Order of the Ray trials of a plan: networks first, heads as soon as their network is finished."""

from collections import deque
from typing import Any

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.store import Store
from tune_calib.paths import parse_path
from tune_calib.tuning.progress.tracker import TRIALS
from tune_calib.tuning.ray.executor import OVER, Executor, Resources, configuration, last_line
from tune_calib.tuning.ray.plan import Plan, RayTrial
from tune_calib.tuning.ray.progress import show_phase
from tune_calib.tuning.ray.rows import Provenance


class PlanFeed:
    """The networks of a plan, and the heads of those that are finished.

    Args:
        plan: what to do.
        provenance: what its rows say of where they are from.
    """

    def __init__(self, plan: Plan, provenance: Provenance) -> None:
        self.provenance = provenance
        self.store = Store(parse_path(provenance.store))
        self.ready = deque(plan.networks)
        self.waiting: dict[str, list[RayTrial]] = {}
        for population in plan.populations:
            self.waiting.setdefault(population.network_id, []).append(population)
        self.running: dict[str, RayTrial] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next Ray trial; None while only networks are left that others wait for."""
        if not self.ready:
            is_last = not any(trial.kind == "network" for trial in self.running.values())
            return OVER if is_last else None
        trial = self.running[trial_id] = self.ready.popleft()
        return configuration(self.provenance, trial.config())

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Heads of a finished network may start; those of one that failed do not."""
        trial = self.running.pop(trial_id)
        if trial.kind == "network" and has_network(trial.first.spec, self.store):
            self.ready.extend(self.waiting.pop(trial.network_id, []))


def resources_of(plan: Plan, gpus: float) -> list[Resources]:
    """What the kinds of Ray trials of a plan need."""
    kinds = {(each.threads, each.precision) for each in (*plan.networks, *plan.populations)}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def execute(
    title: str, plan: Plan, executor: Executor, provenance: Provenance, gpus: float
) -> list[str]:
    """Run what a plan holds to its end.

    Args:
        title: shown with the progress.
        plan: what to do.
        executor: carries it out.
        provenance: what its rows say of where they are from.
        gpus: of each trial.

    Returns:
        One line for each Ray trial that crashed.
    """
    ray_trials = [*plan.networks, *plan.populations]
    if not ray_trials:
        return []
    total = sum(len(each.trials) for each in ray_trials)
    heads = sum(len(population.trials) for population in plan.populations)
    kinds = {"networks": len(plan.networks), "heads": heads}
    with show_phase(title, total, TRIALS, kinds, executor, provenance.board):
        feed = PlanFeed(plan, provenance)
        errors = executor.run(feed, len(ray_trials), provenance, gpus)
    return [last_line(error) for error in errors]
