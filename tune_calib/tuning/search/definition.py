"""The definition of a search: its objective, its identity and its candidates."""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import itemgetter, le, mul
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal

from tune_calib.errors import UserError
from tune_calib.results.manifests import ReusedRecord, SearchManifest, SearchRequestRecord
from tune_calib.results.selection import BASELINE, Row
from tune_calib.spec import plugins
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import flatten
from tune_calib.spec.ladder import PlannedTrial, Rung, build_rung, build_spec, find_keys
from tune_calib.spec.methods import METHODS, MethodKind
from tune_calib.spec.metrics import METRICS, column, refuse_unsearchable
from tune_calib.spec.names import SHORT_BASELINE, is_chance
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.settings import restore_recipe
from tune_calib.spec.space import MANY_POINTS, SPACES, Choice, Point, Setting, Space
from tune_calib.text import format_points, nearest
from tune_calib.tuning.folder import hash_json


@dataclass(frozen=True)
class SuggestionResult:
    # ``done``, the first other status, or ended early by ``race`` or ``halving``.
    status: Literal["done", "diverged", "crashed", "raced", "stopped"]
    values: tuple[float, ...] = ()  # mean of each metric over the seeds; empty unless done
    drop: float = math.nan  # mean loss of accuracy to the baseline of the same network seed
    at_chance: bool = False  # a trial has this flag, so that it cannot be chosen


@dataclass(frozen=True)
class Objective:
    """Metrics on ``select``, of which the first decides, and the accuracy that they may cost."""

    metrics: tuple[str, ...]
    guard: float  # largest loss of accuracy, as a fraction

    def __post_init__(self) -> None:
        refuse_unsearchable(self.metrics)

    @property
    def signs(self) -> list[int]:
        """Return the sign of each metric that makes less better."""
        return [1 if METRICS[name].is_less_better else -1 for name in self.metrics]

    @property
    def directions(self) -> list[Literal["minimize", "maximize"]]:
        return ["minimize" if sign == 1 else "maximize" for sign in self.signs]

    def summarise(
        self, rows: Sequence[Row | None], baseline: Mapping[int, float]
    ) -> SuggestionResult:
        """Summarise the trials of a suggestion, given the baseline's accuracy by network seed."""
        complete_rows = list(filter(None, rows))
        if len(complete_rows) < len(rows):
            return SuggestionResult("crashed")
        drops = []
        for row in complete_rows:
            if row["status"] != "done":
                return SuggestionResult(row["status"])
            drops.append(baseline[row["network_seed"]] - row[column("select", "accuracy")])
        values = tuple(compute_means(complete_rows, self.metrics))
        if not all(map(math.isfinite, values)):
            return SuggestionResult("diverged")
        at_chance = is_chance(row.get("flags") for row in complete_rows)
        return SuggestionResult("done", values, fmean(drops), at_chance)

    def excess(self, result: SuggestionResult) -> float:
        """Return how much the drop exceeds the guard; at most 0 within it."""
        if result.at_chance:  # even if the baseline is at chance too
            return 1.0
        # Accuracies of n images are multiples of 1/n; rounding errors must not decide.
        return result.drop - self.guard - 1e-9

    def losses(self, result: SuggestionResult) -> tuple[float, ...]:
        """Return the values with signs such that less is better, without their last bits."""
        return tuple(round(loss, 12) for loss in map(mul, self.signs, result.values))

    def rank(self, result: SuggestionResult) -> tuple[float, tuple[float, ...]]:
        """Return a key by which results within the guard come first, and then better ones."""
        return max(0.0, self.excess(result)), self.losses(result)

    def within_guard(self, results: Mapping[int, SuggestionResult]) -> dict[int, SuggestionResult]:
        return {n: v for n, v in results.items() if v.status == "done" and self.excess(v) <= 0}

    def find_front(self, results: Mapping[int, SuggestionResult]) -> list[int]:
        """Return the numbers of the Pareto set within the guard, ordered by the first metric."""
        # Only the first of equal results stays, so that the choice depends on no order.
        numbers: dict[tuple[float, ...], int] = {}
        for number, result in sorted(self.within_guard(results).items()):
            numbers.setdefault(self.losses(result), number)
        front: dict[tuple[float, ...], int] = {}
        for losses, number in sorted(numbers.items()):
            # A result is dominated by an earlier one in this order, and then by one of the front.
            if not any(all(map(le, other, losses)) for other in front):
                front[losses] = number
        return list(front.values())

    def choose(self, results: Mapping[int, SuggestionResult]) -> int | None:
        """Choose the best first metric within the guard; later metrics, then numbers break ties."""
        within = self.within_guard(results)
        return min(within, key=lambda n: (self.losses(within[n]), n), default=None)

    def describe_rule(self) -> str:
        best = METRICS[self.metrics[0]].title
        return f"best {best} on select with at most {format_points(self.guard)} of accuracy lost"


def compute_means(rows: Sequence[Row], metrics: Iterable[str]) -> list[float]:
    return [fmean(map(itemgetter(column("select", name)), rows)) for name in metrics]


def list_hashes(trials: Iterable[PlannedTrial]) -> list[str]:
    return [trial.spec.hash for trial in trials]


@dataclass(frozen=True)
class SearchDefinition:
    """The objective, the sampler and the fixed settings of a search; its hash is its identity."""

    method: str  # or a pipeline, e.g. ``ls+mac_cal+temperature``
    resolved: ResolvedRequest  # settings that are not searched, and the seeds of each suggestion
    objective: Objective
    sampler: str = "tpe"
    sampler_seed: int = 0
    population: int = 8  # suggestions of a batch of heads
    # Batches of heads that are suggested before the first of them ends. With 1, nothing is trained
    # while suggestions are drawn; more than 2 keep no actor busier and inform the sampler less.
    lag: int = 2
    grid: Mapping[str, Sequence[Choice]] = field(default_factory=dict)  # the user's values
    around: Point = field(default_factory=dict)  # of a local sampler, if not the defaults
    replay: Mapping[str, str] = field(default_factory=dict)  # digest of a table, and the answer
    reuse: tuple[ReusedRecord, ...] = ()  # what it takes from earlier searches
    join: bool = False  # it consists of their suggestions
    race: bool = False  # further seeds only while a suggestion may be the best
    halving: int = 0  # the best 1/n of short schedules get n times as many epochs; 0: none

    @cached_property
    def record(self) -> SearchRequestRecord:
        plain = {
            "method": self.method,
            "sampler": self.sampler,
            "sampler_seed": self.sampler_seed,
            "scheduler": "none",
            "population": self.population,
            "lag": self.lag,
            **self.resolved.identity(),
            "given": self.resolved.overrides,
            "seeds": asdict(self.resolved.seeds),
            "objective": asdict(self.objective),
            # With another version of a plug-in it is another search, also in a database.
            "plugins": sorted(self.plugins),
            "grid": self.grid,
            "around": self.around,
            "replay": self.replay,
            "race": self.race,
            "halving": self.halving,
        }
        if self.reuse:
            plain |= {"reuse": [record.plain() for record in self.reuse], "join": self.join}
        # JSON turns tuples into lists, so that the record equals the one that is read.
        return SearchRequestRecord(**json.loads(json.dumps(plain)))

    @cached_property
    def identity(self) -> str:
        """Return the hash of the definition, which is in each row of the search."""
        return hash_json({**self.record.plain(), "given": self.resolved.identity()["given"]})

    @cached_property
    def candidates(self) -> "Candidates":
        return Candidates(self.method, self.resolved, self.grid)

    @cached_property
    def points(self) -> list[Point]:
        """List the points before those of the sampler: published, earlier ones or a whole grid."""
        first: Iterable[Point] = self.candidates.first()
        earlier = [point for record in self.reuse for point in record.points]
        if self.join:
            first = [point for point in first if point in earlier]
        if not SAMPLERS[self.sampler].tries_grid:
            return _list_unique([*first, *earlier])
        # The levels of all settings of a method may have millions of points.
        limit = None if self.grid else MANY_POINTS
        points: Iterable[Point] = itertools.islice(self.candidates.space.grid(), limit)
        if SAMPLERS[self.sampler].is_local:
            space = self.candidates.space
            points = space.around(space.active(self.around or self.candidates.defaults))
        return _list_unique(itertools.chain(first, points))

    @property
    def plugins(self) -> set[str]:
        """Return the content hashes of the plug-ins that it uses."""
        if not plugins.in_use():
            return set()
        candidates, recipe = self.candidates, self.resolved.recipe
        backbones = candidates.space.settings.get("network.backbone")
        origins = {*map(SPACES.origin, candidates.names), SAMPLERS.origin(self.sampler)}
        origins.update(map(METRICS.origin, self.objective.metrics))
        if recipe:
            origins.add(RECIPES.origin(recipe.name))
        if backbones:
            origins.update(BACKBONES.origin(str(name)) for name in backbones.values() or ())
        for trial in (*candidates.baseline(), *candidates.trials({}, 0)):
            origins.update(trial.spec.plugins)
        return set(filter(None, origins))

    @classmethod
    def read(cls, manifest: SearchManifest, needs_recipe: bool = True) -> "SearchDefinition":
        """Restore the definition of a search; a recipe imports torch."""
        record, recipe = manifest.question, None
        if needs_recipe:
            recipe = restore_recipe(record.given, record.defaults, record.recipe)
        seeds = record.seeds
        resolved = ResolvedRequest(
            overrides=record.given,
            seeds=Seeds(tuple(seeds.network), tuple(seeds.head), seeds.is_paired),
            recipe=recipe,
            own_recipes=record.own_recipes,
        )
        return cls(
            method=record.method,
            resolved=resolved,
            objective=Objective(tuple(record.objective.metrics), record.objective.guard),
            sampler=record.sampler,
            sampler_seed=record.sampler_seed,
            population=record.population,
            lag=record.lag,
            grid=record.grid,
            around=record.around,
            replay=record.replay,
            reuse=tuple(record.reuse),
            join=record.join,
            race=record.race,
            halving=record.halving,
        )


def _list_unique(points: Iterable[Point]) -> list[Point]:
    unique: dict[frozenset[tuple[str, Choice]], Point] = {}
    for point in points:
        unique.setdefault(frozenset(point.items()), point)
    return list(unique.values())


def restrict_space(
    pipeline: str, resolved: ResolvedRequest, grid: Mapping[str, Sequence[Choice]]
) -> Space:
    """Join the spaces of the methods of a pipeline, without fixed settings or over a grid."""
    settings: dict[str, Setting] = {}
    first: list[Point] = []
    for name in map(METHODS.canonical, pipeline.split("+")):
        if name in SPACES:
            settings |= SPACES[name].settings
            first += SPACES[name].first
    if resolved.is_frozen:
        settings = {name: s for name, s in settings.items() if not name.startswith("network.")}
    space = Space(pipeline, settings, tuple(first)).without(flatten(resolved.overrides))
    return space.over(grid) if grid else space


class Candidates:
    """The trials of a search: each point of the space of a pipeline under every seed."""

    def __init__(
        self,
        method: str,
        resolved: ResolvedRequest,
        grid: Mapping[str, Sequence[Choice]] = MappingProxyType({}),
    ) -> None:
        # The slots of the pipeline, each with the name of its method.
        self.slots = build_rung(method, {}, "variant").slots
        self.names = [str(settings["method"]) for settings in self.slots.values()]
        if "network" in self.slots and resolved.is_frozen:
            raise UserError(
                f"a search of {method} trains networks, but a frozen network (network.epochs=0) is "
                "not trained; search a head or post-hoc method",
                "network.epochs",
            )
        if not any(name in SPACES for name in self.names):
            raise UserError(f"{method} has no settings to search; run tune-calib compare {method}")
        self.method = method
        self.resolved = resolved
        rungs = [self.rung({}), Rung(BASELINE, "")]
        for slot, settings in resolved.overrides.items():
            keys = find_keys(rungs, slot)
            for key in settings:
                if key not in keys:
                    hint = nearest(key, sorted(keys))
                    raise UserError(f"no rung has a setting {slot}.{key}{hint}", f"{slot}.{key}")
        self.space = restrict_space(method, resolved, grid)
        plain = self.trials({}, 0)[0].spec
        self.defaults: dict[str, Any] = {}
        for name in self.space.settings:
            slot, _, key = name.partition(".")
            filled = getattr(plain, slot)
            # The key is of the method or of the slot.
            holder = filled.params if key in type(filled.params).model_fields else filled
            self.defaults[name] = getattr(holder, key)

    @property
    def kind(self) -> MethodKind:
        """Return what each suggestion trains: a network, a head, or only a post-hoc method."""
        if any(name.startswith("network.") for name in self.space.settings):
            return "network"
        if "head" in self.slots:
            return "head"
        return "posthoc" if "posthoc" in self.slots else "network"

    def first(self) -> list[dict[str, Choice]]:
        """Return the method's defaults on the data set and other published values, each once."""
        points: list[dict[str, Choice]] = []
        for published in ({}, *self.space.first):
            point = self.space.active({**self.defaults, **published})
            if self.space.holds(point) and point not in points:
                points.append(point)
        return points

    def trials(self, point: Point, number: int) -> list[PlannedTrial]:
        return self._plan(self.rung(point), number, f"trial {number}")

    def baseline(self, epochs: int | None = None) -> list[PlannedTrial]:
        """Build the network trained with cross entropy, with its own head, for each seed."""
        rung, number = Rung(BASELINE, ""), -1
        if epochs is not None:  # of short suggestions alone
            rung, number = Rung(BASELINE, "", {"network": {"epochs": epochs}}), SHORT_BASELINE
        trials = self._plan(rung, number, BASELINE)
        return list(dict(zip(list_hashes(trials), trials, strict=True)).values())

    def rung(self, point: Point, label: str = "") -> Rung:
        slots = {slot: dict(settings) for slot, settings in self.slots.items()}
        for name, value in point.items():
            slot, _, key = name.partition(".")
            slots[slot][key] = value
        return Rung(label, label, slots, kind="variant")

    def _plan(self, rung: Rung, number: int, label: str) -> list[PlannedTrial]:
        trials = []
        for seeds in self.resolved.seeds.pairs():
            trials.append(PlannedTrial(build_spec(rung, self.resolved, seeds), number, label))
        return trials
