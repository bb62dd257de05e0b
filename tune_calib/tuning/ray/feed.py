"""Order of the Ray trials of a plan: networks first, heads as soon as their network is finished."""

from collections import deque
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.store import Store
from tune_calib.paths import place
from tune_calib.tuning.progress.work import TRIALS
from tune_calib.tuning.ray.head_trainable import HeadTrainable
from tune_calib.tuning.ray.launch import ALL_EPOCHS, Resources, fit, last_line
from tune_calib.tuning.ray.network_trainable import NetworkTrainable
from tune_calib.tuning.ray.plan import Plan, RayTrial
from tune_calib.tuning.ray.progress import carried_out
from tune_calib.tuning.ray.rows import Circumstances

_KINDS: dict[str, type[NetworkTrainable] | type[HeadTrainable]] = {
    "network": NetworkTrainable,
    "head": HeadTrainable,
}


class PlanTrainable(tune.Trainable):
    """Carries out the Ray trials of a plan, networks and populations, whichever comes."""

    def setup(self, config: dict[str, Any]) -> None:
        """Become what the configuration's ``work`` asks for."""
        self.carried_out = _KINDS[config["work"]["kind"]](config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take up another trial; one of the same kind finds open what it shares."""
        if type(self.carried_out) is _KINDS[new_config["work"]["kind"]]:
            return self.carried_out.reset_config(new_config)
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """A step of the trial."""
        return self.carried_out.step()

    def cleanup(self) -> None:
        """Free what the trial holds."""
        self.carried_out.cleanup()


class Feed(Searcher):
    """Hands Ray trials to a ``Tuner``; what it needs to go on lies elsewhere than in Ray Tune."""

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Whoever feeds knows what is searched for, and where."""
        return True

    def save(self, checkpoint_path: str) -> None:
        """Nothing: to do = planned - done."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: to do = planned - done."""


class PlanFeed(Feed):
    """The networks of a plan, and the heads of those that are finished.

    Args:
        plan: what to do.
        circumstances: what its rows say of where they are from.
    """

    def __init__(self, plan: Plan, circumstances: Circumstances) -> None:
        super().__init__()
        self.circumstances = circumstances
        self.store = Store(place(circumstances.store))
        self.ready = deque(plan.networks)
        self.waiting: dict[str, list[RayTrial]] = {}
        for population in plan.populations:
            self.waiting.setdefault(population.network_id, []).append(population)
        self.running: dict[str, RayTrial] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next Ray trial; None while only networks are left that others wait for."""
        if not self.ready:
            is_last = not any(trial.kind == "network" for trial in self.running.values())
            return Searcher.FINISHED if is_last else None
        trial = self.running[trial_id] = self.ready.popleft()
        return {
            "run": self.circumstances.plain(),
            "work": trial.config(),
            "epochs_per_step": ALL_EPOCHS,
        }

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


def run_plan(title: str, plan: Plan, circumstances: Circumstances, gpus: float) -> list[str]:
    """Run what a plan holds to its end.

    Args:
        title: shown with the progress.
        plan: what to do.
        circumstances: what its rows say of where they are from.
        gpus: of each Ray trial.

    Returns:
        One line for each Ray trial that crashed.
    """
    ray_trials = [*plan.networks, *plan.populations]
    if not ray_trials:
        return []
    kind = tune.with_resources(
        PlanTrainable, lambda config: Resources(config["work"]["threads"], gpus).placement()
    )
    total = sum(len(each.trials) for each in ray_trials)
    heads = sum(len(population.trials) for population in plan.populations)
    kinds = {"networks": len(plan.networks), "heads": heads}
    with carried_out(title, total, TRIALS, kinds, circumstances.board):
        feed = PlanFeed(plan, circumstances)
        errors = fit(len(ray_trials), kind, circumstances, feed)
    return [last_line(error) for error in errors]
