"""The stages of a suggestion: the seeds of a race, rungs of complete schedules, or a single one."""

import math
from functools import cached_property
from itertools import chain

from tune_calib.errors import UserError
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.space import Point
from tune_calib.tuning.search.definition import Candidates, SearchDefinition, list_hashes

MOST_RUNGS, LEAST_EPOCHS = 3, 3


class Stages:
    """The stages that suggestions of a search pass, each with trials of its own."""

    def __init__(self, definition: SearchDefinition) -> None:
        self.definition = definition

    @property
    def candidates(self) -> Candidates:
        return self.definition.candidates  # whose methods take long to import

    @cached_property
    def sizes(self) -> list[int]:
        return list(map(len, self.list_trials({}, 0)))

    @property
    def count(self) -> int:
        return len(self.sizes)

    @property
    def batch_size(self) -> int:
        """Return how many suggestions are drawn together, of heads or with rungs."""
        if not self.rungs:
            return self.definition.population
        return int(self.definition.halving ** (len(self.rungs) - 1))

    def fill_brackets(self, length: int) -> int:
        """Return how many suggestions a search of some length has, to have no partial bracket."""
        size = self.batch_size if self.rungs else 1
        return math.ceil(length / size) * size

    @property
    def slot(self) -> str:
        """Return the slot whose epochs differ between rungs."""
        return "head" if self.candidates.kind == "head" else "network"

    @cached_property
    def rungs(self) -> tuple[int, ...]:
        """Return the epochs of each rung, the last of which are all; none without halving."""
        if not (factor := self.definition.halving):
            return ()
        if self.candidates.kind == "posthoc":
            raise UserError("shortens training, but a post-hoc method has no epochs", "halving")
        if f"{self.slot}.epochs" in self.candidates.space.settings:
            raise UserError(f"sets {self.slot}.epochs, which is searched here; fix it", "halving")
        epochs: int = getattr(self.candidates.trials({}, 0)[0].spec, self.slot).epochs
        for count in range(MOST_RUNGS, 1, -1):
            rungs = [round(epochs / factor**power) for power in reversed(range(count))]
            if rungs[0] >= LEAST_EPOCHS:
                return tuple(rungs)
        raise UserError(
            f"trains for 1/{factor} of the {epochs} epochs first, but needs at least "
            f"{LEAST_EPOCHS}; raise {self.slot}.epochs, or leave it out",
            "halving",
        )

    def list_trials(self, point: Point, number: int) -> list[list[PlannedTrial]]:
        if self.rungs:
            name = f"{self.slot}.epochs"
            return [self.candidates.trials({**point, name: n}, number) for n in self.rungs]
        trials = self.candidates.trials(point, number)
        if not self.definition.race:
            return [trials]
        # Heads of one network share the noise of its seed.
        seeds = self.definition.resolved.seeds
        axis = 0 if len(seeds.network) > 1 else 1
        by_seed: dict[int, list[PlannedTrial]] = {}
        for pair, trial in zip(seeds.pairs(), trials, strict=True):
            by_seed.setdefault(pair[axis], []).append(trial)
        return list(by_seed.values())

    def count_suggestions(self, planned: int) -> list[int]:
        """Count the suggestions that reach each stage: of a race at most, else approximately."""
        factor = max(1, self.definition.halving)
        return [planned // factor**stage for stage in range(self.count)]

    @cached_property
    def baselines(self) -> list[list[PlannedTrial]]:
        """List the trials of the baseline by stage; short networks are compared with short ones."""
        complete = self.candidates.baseline()
        if not self.rungs or self.slot == "head":
            return [complete] * self.count
        epochs, shares = complete[0].spec.network.epochs, [n / self.rungs[-1] for n in self.rungs]
        shorter = [self.candidates.baseline(max(1, round(epochs * n))) for n in shares[:-1]]
        return [*shorter, complete]

    @property
    def all_baselines(self) -> list[PlannedTrial]:
        """List the trials of the baseline, the complete ones before the short ones."""
        trials = [*self.baselines[-1], *chain.from_iterable(self.baselines)]
        return list(dict(zip(list_hashes(trials), trials, strict=True)).values())

    def is_exempt(self, point: Point) -> bool:
        """Return whether it passes all stages: a published point, or with rungs the defaults."""
        points = self.candidates.first()
        return dict(point) in (points[:1] if self.rungs else points)

    def check(self) -> None:
        """Refuse a race or halving that cannot compare the suggestions."""
        definition = self.definition
        if not definition.race and not definition.halving:
            return
        name = "race" if definition.race else "halving"
        sampler = SAMPLERS[definition.sampler]
        if definition.race and definition.halving:
            raise UserError("compares seeds, not rungs; leave `halving` out", name)
        if sampler.tries_grid or sampler.needs_all:
            raise UserError(f"ends suggestions early, but {sampler.name} needs all of them", name)
        if len(definition.objective.metrics) > 1:
            raise UserError("compares suggestions by one metric; name one `metric`", name)
        if self.count < 2:
            raise UserError("compares seeds and needs at least two; set `seeds`", name)
