"""What a ladder is, and how it expands to trial specs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tune_calib.errors import UserError
from tune_calib.registry import METHODS, nearest
from tune_calib.spec import DataSlot, HeadSlot, NetworkSlot, PostHocSlot, TrialSpec

Settings = Mapping[str, Mapping[str, Any]]

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
        is_control: shown apart; not a step of the ladder.
    """

    label: str
    ingredient: str
    slots: Settings = field(default_factory=dict)
    published: str | None = None
    is_control: bool = False


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
    ladder: Ladder, settings: Settings, seeds: Seeds, with_controls: bool
) -> list[PlannedTrial]:
    """Write a ladder out as trial specs.

    Args:
        ladder: the ladder.
        settings: settings of the run, by slot; what a rung sets itself stands above them.
        seeds: seeds of networks and heads.
        with_controls: add the controls.

    Returns:
        The trials in the order of the rungs, none twice.

    Raises:
        UserError: a setting is unknown to every rung, or out of range.
    """
    rungs = [r for r in ladder.rungs if with_controls or not r.is_control]
    _refuse_unused(rungs, settings)
    trials: dict[str, PlannedTrial] = {}
    for index, rung in enumerate(rungs):
        for network_seed, head_seed in seeds.pairs():
            spec = _spec(rung, settings, network_seed, head_seed)
            trials.setdefault(spec.hash, PlannedTrial(spec, index, rung.label))
    return list(trials.values())


def _spec(rung: Rung, settings: Settings, network_seed: int, head_seed: int) -> TrialSpec:
    seeds = {"network": {"seed": network_seed}, "head": {"seed": head_seed}}
    slots: dict[str, Any] = {}
    for name, model in _SLOTS.items():
        if name in ("head", "posthoc") and name not in rung.slots:
            continue
        given = {**settings.get(name, {}), **rung.slots.get(name, {}), **seeds.get(name, {})}
        slots[name] = _slot(model, given)
    return TrialSpec.build(**slots)


def _slot(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Part slot settings from method settings; those of another rung's method are left out."""
    fields = {key: value for key, value in given.items() if key in model.model_fields}
    if model is DataSlot:
        return fields
    method = METHODS[given.get("method", "ce")]
    params = {key: value for key, value in given.items() if key in method.params.model_fields}
    return {**fields, "params": params}


def _refuse_unused(rungs: Sequence[Rung], settings: Settings) -> None:
    for slot, given in settings.items():
        known = list(_known_keys(rungs, settings, slot))
        for key in given:
            if key not in known:
                raise UserError(f"no rung has a setting {slot}.{key}{nearest(key, known)}")


def _known_keys(rungs: Sequence[Rung], settings: Settings, slot: str) -> Iterator[str]:
    yield from _SLOTS[slot].model_fields
    for rung in rungs:
        method = {**settings.get(slot, {}), **rung.slots.get(slot, {})}.get("method")
        if slot == "network":
            method = method or "ce"
        if method is not None:
            yield from METHODS[method].params.model_fields
