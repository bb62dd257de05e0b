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

LARGEST_PLAN = 100_000
"""Trials of one ladder or search; more are refused before any is written out."""

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
        adds_head_epochs: the network is trained as many epochs longer as the ladder's heads are
            retrained, at its last learning rate: up to there it is the network of the base.
    """

    label: str
    ingredient: str
    slots: Settings = field(default_factory=dict)
    published: str | None = None
    kind: Kind = "step"
    adds_head_epochs: bool = False


@dataclass(frozen=True)
class Ladder:
    """An ordered list of rungs, each adding one ingredient to the one before.

    Attributes:
        name: registry key.
        title: one line.
        rungs: in order, controls last.
        published: ``paper/table`` of the packaged published results.
        head_recipe: a head method, whose recipe all heads of the ladder take.
    """

    name: str
    title: str
    rungs: tuple[Rung, ...]
    published: str | None = None
    head_recipe: str | None = None


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

    @classmethod
    def count(cls, both: int | None, network: int | None, head: int | None) -> "Seeds":
        """The first seeds: as many pairs, or so many networks with so many heads each.

        Raises:
            UserError: they are more than any plan has.
        """
        is_paired = network is None and head is None
        refuse_large((both or 1) if is_paired else (network or 1) * (head or 1))
        if is_paired:
            numbers = tuple(range(both or 1))
            return cls(numbers, numbers, is_paired=True)
        return cls(tuple(range(network or 1)), tuple(range(head or 1)), is_paired=False)

    def pairs(self) -> list[tuple[int, int]]:
        """All (network seed, head seed) that are run."""
        if self.is_paired:
            return list(zip(self.network, self.head, strict=True))
        return [(n, h) for n in self.network for h in self.head]


def refuse_large(trials: int) -> None:
    """Refuse a plan that is too large to be written out.

    Raises:
        UserError: it is.
    """
    if trials > LARGEST_PLAN:
        raise UserError(
            f"{trials:,} trials are planned, and a plan has at most {LARGEST_PLAN:,}; ask for "
            "fewer seeds, trials or methods at a time"
        )


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
        The trials in the order of the rungs; a rung without ``head`` has one for all head seeds.

    Raises:
        UserError: a setting that was asked for is unknown to every rung, or out of range, or
            makes two rungs the same; or the trials are too many.
    """
    rungs = [rung for rung in ladder.rungs if with_controls or rung.kind != "control"]
    refuse_unknown(rungs, given)
    refuse_large(len(rungs) * len(seeds.pairs()))
    recipe = METHODS[ladder.head_recipe].slot_defaults if ladder.head_recipe else None
    asked = {**given, "head": {**(recipe or {}), **given.get("head", {})}}
    heads = [rung for rung in rungs if "head" in rung.slots]
    trials: dict[str, PlannedTrial] = {}
    for index, rung in enumerate(rungs):
        for network_seed, head_seed in seeds.pairs():
            spec = spec_of(rung, defaults, asked, network_seed, head_seed)
            if rung.adds_head_epochs:
                head = spec_of(heads[0], defaults, asked, network_seed, head_seed).head
                spec = _longer(spec, head.epochs) if head else spec
            first = trials.setdefault(spec.hash, PlannedTrial(spec, index, rung.label))
            if first.rung != index:
                raise _collision(rungs[first.rung], rung, given)
    return list(trials.values())


def _collision(first: Rung, second: Rung, given: Settings) -> UserError:
    """The error of two rungs that are one trial, with the settings that made them so."""
    absent = object()
    blamed = [
        f"{slot}.{key}={value}"
        for slot, asked in given.items()
        for key, value in asked.items()
        if _own(first, slot).get(key, absent) != _own(second, slot).get(key, absent)
    ]
    cause = f" with {' '.join(blamed)}" if blamed else ""
    mend = "name another value or leave it out" if blamed else "leave one of them out"
    return UserError(
        f"{first.label!r} and {second.label!r} are one and the same trial{cause}; {mend}"
    )


def _own(rung: Rung, slot: str) -> Mapping[str, Any]:
    """What a rung sets itself."""
    return rung.slots.get(slot, {})


def side_by_side(pipelines: Sequence[str], settings: Sequence[Settings] = ()) -> Ladder:
    """A ladder of variants: methods alone, or several joined as ``ls+mac_cal+temperature``.

    Args:
        pipelines: names of the method registry joined by ``+``, each of another kind; where no
            network method is among them, the network is trained with CE.
        settings: of each pipeline, by slot; none has any unless given.

    Raises:
        UserError: a method or a setting is unknown, two of a pipeline are of one kind, or one is
            named twice with equal settings.
    """
    given = list(settings) or [{}] * len(pipelines)
    rungs = tuple(
        pipeline(name, own, "variant" if place else "base")
        for place, (name, own) in enumerate(zip(pipelines, given, strict=True))
    )
    labels = [rung.label for rung in rungs]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label!r} is named twice")
    return Ladder("compare " + " ".join(labels), "Methods side by side", rungs)


def pipeline(name: str, settings: Settings, kind: Kind) -> Rung:
    """One rung of ``side_by_side``; its label tells the settings too."""
    methods = [METHODS[part] for part in name.split("+")]
    slots: dict[str, Mapping[str, Any]] = {}
    for method in methods:
        if method.kind in slots:
            raise UserError(f"{name!r} has two {method.kind} methods; a pipeline takes one a kind")
        slots[method.kind] = {"method": method.name}
    label = name
    for slot, asked in settings.items():
        if slot not in slots and slot != "network":
            raise UserError(f"{name!r} has no {slot} method to set {next(iter(asked))!r} of")
        label += "".join(f" {key}={value}" for key, value in asked.items())
    refuse_unknown([Rung(name, "", slots)], settings)
    for slot, asked in settings.items():
        slots[slot] = {**asked, **slots.get(slot, {})}
    return Rung(label, " + ".join(method.title for method in methods), slots, kind=kind)


def spec_of(
    rung: Rung, defaults: Settings, given: Settings, network_seed: int, head_seed: int
) -> TrialSpec:
    """The trial spec of a rung.

    Settings stand above each other: data set, method, ladder, user, rung,
    seeds.

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


def _longer(spec: TrialSpec, epochs: int) -> TrialSpec:
    """Train the network longer; its learning rate drops at the epochs where it did before."""
    slots = spec.model_dump()
    network, whole = slots["network"], spec.network.epochs + epochs
    milestones = [share * spec.network.epochs / whole for share in spec.network.milestones]
    slots["network"] = {**network, "epochs": whole, "milestones": milestones}
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


def refuse_unknown(rungs: Sequence[Rung], given: Settings) -> None:
    """Check that every setting that was asked for is known to some rung.

    Raises:
        UserError: one is not.
    """
    for slot, asked in given.items():
        known = {*_SLOTS[slot].model_fields, *_known_keys(rungs, slot)}
        for key in asked:
            if key not in known:
                raise UserError(f"no rung has a setting {slot}.{key}{nearest(key, sorted(known))}")


def refuse_unused(rungs: Sequence[Rung], given: Settings) -> None:
    """Check that every setting that was asked for changes some rung.

    Raises:
        UserError: no rung knows one, or every rung that knows it sets it itself.
    """
    for slot, asked in given.items():
        known = list(_known_keys(rungs, slot))
        taken = {
            k for rung in rungs for k in _known_keys([rung], slot) if k not in _own(rung, slot)
        }
        for key in asked:
            if key not in known:
                raise UserError(f"no rung has a setting {slot}.{key}{nearest(key, known)}")
            if key not in taken:
                raise UserError(f"every rung that knows {slot}.{key} sets it itself; leave it out")


def _known_keys(rungs: Sequence[Rung], slot: str) -> Iterator[str]:
    """Settings of a slot that some rung fills."""
    for rung in rungs:
        if slot in ("head", "posthoc") and slot not in rung.slots:
            continue
        yield from _SLOTS[slot].model_fields
        method = _own(rung, slot).get("method", "ce" if slot == "network" else None)
        if method is not None:
            yield from METHODS[method].params.model_fields
