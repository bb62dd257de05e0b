"""What a ladder is, and how it expands to trial specs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from tune_calib.errors import UserError
from tune_calib.registry import METHODS, nearest
from tune_calib.spec import DataSlot, HeadSlot, NetworkSlot, PostHocSlot, TrialSpec

Settings = Mapping[str, Mapping[str, Any]]
Kind = Literal["base", "step", "variant", "control"]

_SLOTS: dict[str, type[BaseModel]] = {
    "data": DataSlot,
    "network": NetworkSlot,
    "head": HeadSlot,
    "posthoc": PostHocSlot,
}


@dataclass(frozen=True)
class Rung:
    """One row of an ablation table.

    Attributes:
        label: how it is printed.
        ingredient: what it adds to the rung before.
        slots: settings that make the rung, by slot; method settings stand beside slot settings.
            A rung without ``head`` evaluates the network's own head.
        published: row of the paper's table that it corresponds to.
        kind: a ``step`` adds to the rung before; a ``base`` starts a chain of steps; a
            ``variant`` stands beside the others and is compared with the base alone; so does a
            ``control``, which is run on request.
    """

    label: str
    ingredient: str
    slots: Settings = field(default_factory=dict)
    published: str | None = None
    kind: Kind = "step"


@dataclass(frozen=True)
class Ladder:
    """An ordered list of rungs, each adding one ingredient to the one before.

    Attributes:
        name: registry key.
        title: one line.
        rungs: in order, controls last.
        published: ``paper/table`` of the packaged published results.
    """

    name: str
    title: str
    rungs: tuple[Rung, ...]
    published: str | None = None


@dataclass(frozen=True)
class PlannedTrial:
    """A trial spec and the place that it has in a sweep."""

    spec: TrialSpec
    rung: int
    label: str


@dataclass(frozen=True)
class Seeds:
    """Pairs of network and head seeds.

    Attributes:
        network: seeds of the networks.
        head: seeds of the heads.
        is_paired: the i-th network goes with the i-th head seed; else every pair is run.
    """

    network: tuple[int, ...]
    head: tuple[int, ...]
    is_paired: bool

    def pairs(self) -> list[tuple[int, int]]:
        """All (network seed, head seed) that are run."""
        if self.is_paired:
            return list(zip(self.network, self.head, strict=True))
        return [(n, h) for n in self.network for h in self.head]


def expand(
    ladder: Ladder, defaults: Settings, given: Settings, seeds: Seeds, with_controls: bool
) -> list[PlannedTrial]:
    """Write a ladder out as trial specs.

    Args:
        ladder: the ladder.
        defaults: settings by slot that hold unless others are given.
        given: settings by slot that were asked for; what a rung sets itself stands above them.
        seeds: seeds of networks and heads.
        with_controls: add the controls.

    Returns:
        The trials in the order of the rungs, none twice.

    Raises:
        UserError: a setting that was asked for is unknown to every rung, or out of range.
    """
    rungs = [rung for rung in ladder.rungs if with_controls or rung.kind != "control"]
    refuse_unused(rungs, given)
    trials: dict[str, PlannedTrial] = {}
    for index, rung in enumerate(rungs):
        for network_seed, head_seed in seeds.pairs():
            spec = spec_of(rung, defaults, given, network_seed, head_seed)
            trials.setdefault(spec.hash, PlannedTrial(spec, index, rung.label))
    return list(trials.values())


def side_by_side(methods: Sequence[str]) -> Ladder:
    """A ladder of variants: each method alone, on a network trained with CE if it needs one.

    Args:
        methods: names of the method registry, of any kind.

    Raises:
        UserError: a method is unknown, or named twice.
    """
    for name in methods:
        if methods.count(name) > 1:
            raise UserError(f"method {name!r} is named twice")
    slots: dict[str, Settings] = {name: {METHODS[name].kind: {"method": name}} for name in methods}
    return Ladder(
        name="compare " + " ".join(methods),
        title="Methods side by side",
        rungs=tuple(
            Rung(name, METHODS[name].title, slots[name], kind="variant" if place else "base")
            for place, name in enumerate(methods)
        ),
    )


def spec_of(
    rung: Rung, defaults: Settings, given: Settings, network_seed: int, head_seed: int
) -> TrialSpec:
    """The trial spec of a rung.

    Settings stand above each other: data set, recipe of the method, user, rung, seeds.

    Raises:
        UserError: a setting is out of range.
    """
    seeds = {"network": {"seed": network_seed}, "head": {"seed": head_seed}}
    slots: dict[str, Any] = {}
    for name, model in _SLOTS.items():
        if name in ("head", "posthoc") and name not in rung.slots:
            continue
        asked = {**given.get(name, {}), **rung.slots.get(name, {}), **seeds.get(name, {})}
        slots[name] = _slot(model, defaults.get(name, {}), asked)
    return TrialSpec.build(**slots)


def _slot(
    model: type[BaseModel], defaults: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Part slot settings from method settings; those of another rung's method are left out."""
    if model is DataSlot:
        return {**defaults, **asked}
    method = METHODS[asked.get("method", "ce")]
    settings = {**defaults, **(method.slot_defaults or {}), **asked}
    fields = {key: value for key, value in settings.items() if key in model.model_fields}
    params = {k: value for k, value in settings.items() if k in method.params.model_fields}
    return {**fields, "params": params}


def refuse_unused(rungs: Sequence[Rung], given: Settings) -> None:
    """Check that every setting that was asked for is known to some rung.

    Raises:
        UserError: one is not.
    """
    for slot, asked in given.items():
        known = list(_known_keys(rungs, slot))
        for key in asked:
            if key not in known:
                raise UserError(f"no rung has a setting {slot}.{key}{nearest(key, known)}")


def _known_keys(rungs: Sequence[Rung], slot: str) -> Iterator[str]:
    yield from _SLOTS[slot].model_fields
    for rung in rungs:
        method = rung.slots.get(slot, {}).get("method", "ce" if slot == "network" else None)
        if method is not None:
            yield from METHODS[method].params.model_fields
