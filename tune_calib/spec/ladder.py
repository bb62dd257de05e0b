"""Records of ladders, ladders of named methods, and their expansion to trial specs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.datasets import Settings, flatten
from tune_calib.spec.methods import METHODS, MethodInfo, MethodKind
from tune_calib.spec.resolved import ResolvedRequest, refuse_large
from tune_calib.spec.settings import known_keys, method_of, own_recipe, resolve_spec
from tune_calib.spec.trial import SLOT_TYPES, TrialSpec
from tune_calib.text import nearest

Kind = Literal["base", "step", "variant", "control"]


@dataclass(frozen=True)
class Rung:
    """One row of an ablation table."""

    label: str  # as printed
    ingredient: str  # what it adds to the rung before
    # Settings by slot, including those of the slot's method; without ``head`` the rung evaluates
    # the network's own head.
    slots: Settings = field(default_factory=dict)
    published: str | None = None  # the corresponding row of the paper's table
    # A ``step`` adds to the rung before, and a ``base`` starts a chain of steps. A ``variant`` is
    # compared only with the base, as is a ``control``, which runs only on request.
    kind: Kind = "step"
    # Train the network longer, by as many epochs as the ladder's heads are retrained, at its last
    # learning rate. Up to that point it is the network of the base.
    adds_head_epochs: bool = False


@dataclass(frozen=True)
class Ladder:
    """An ordered list of rungs, each adding one ingredient to the one before."""

    name: str
    title: str  # one line
    rungs: tuple[Rung, ...]  # in order, controls last
    published: str | None = None  # ``paper/table`` of the packaged published results
    head_recipe: str | None = None  # head method whose authors' recipe trains all heads
    is_named: bool = False  # the user named each rung, so none may be left out


LADDERS: Registry[Ladder] = Registry("ladder", "ablations", Ladder)


@dataclass(frozen=True)
class PlannedTrial:
    """A trial spec and the rung of a run that it belongs to."""

    spec: TrialSpec
    rung: int
    label: str

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {**vars(self), "spec": self.spec.model_dump(mode="json")}


def expand(ladder: Ladder, request: ResolvedRequest) -> list[PlannedTrial]:
    """Expand a ladder to trial specs in the order of its rungs."""
    overrides, pairs = request.overrides, request.seeds.pairs()
    rungs = select_rungs(ladder, request)
    rungs = [rung for rung in rungs if request.controls or rung.kind != "control"]
    refuse_unknown(rungs, overrides)
    # Before the specs are built: validating and hashing a million of them takes a while.
    refuse_large(len(rungs) * len(pairs))
    head = overrides.get("head", {})
    if ladder.head_recipe is not None:
        dataset = overrides.get("data", {}).get("dataset", "")
        head = {**own_recipe(METHODS[ladder.head_recipe], dataset), **head}
    request = replace(request, overrides={**overrides, "head": head})
    heads = [rung for rung in rungs if "head" in rung.slots]
    trials: dict[str, PlannedTrial] = {}
    for index, rung in enumerate(rungs):
        for pair in pairs:
            spec = build_spec(rung, request, pair)
            if rung.adds_head_epochs:
                first_head = build_spec(heads[0], request, pair).head
                # The epochs of the first head: all heads of such a ladder have the same recipe.
                spec = _longer(spec, first_head.epochs) if first_head else spec
            # A rung without a head is one trial for all head seeds, and is kept once.
            first = trials.setdefault(spec.hash, PlannedTrial(spec, index, rung.label))
            if first.rung != index:
                raise _collision(rungs[first.rung], rung, overrides)
    return list(trials.values())


def select_rungs(ladder: Ladder, request: ResolvedRequest) -> list[Rung]:
    """Return the rungs of a ladder, controls last, without those of ``find_left_out``."""
    absent = [rung for rungs in find_left_out(ladder, request).values() for rung in rungs]
    if absent and ladder.is_named:
        what = "needs the network itself" if _runs_network(absent[0]) else "trains the network"
        raise UserError(
            f"{absent[0].label!r} {what}, and a frozen one (network.epochs=0) is not trained; "
            "leave it out",
            "network.epochs",
        )
    rungs = [rung for rung in ladder.rungs if rung not in absent]
    if not any(rung.kind != "control" for rung in rungs):
        raise UserError(
            f"every rung of {ladder.name} trains the network, and a frozen one (network.epochs=0) "
            "is not trained: nothing is left to run",
            "network.epochs",
        )
    return rungs


def find_left_out(ladder: Ladder, request: ResolvedRequest) -> dict[str, list[Rung]]:
    """Return the rungs of a ladder that cannot be run as requested, by the reason."""
    found: dict[str, list[Rung]] = {}
    if request.is_frozen:
        what = "they need the network itself" if request.is_imported else "they train the network"
        found[what] = [
            rung
            for rung in ladder.rungs
            if _trains_network(rung) or (request.is_imported and _runs_network(rung))
        ]
    # If the user named a rung for another number of classes, its spec is refused instead.
    if not ladder.is_named and any(_required_classes(rung) for rung in ladder.rungs):
        classes = request.spec().data.info.classes
        found[f"they do not take {classes} classes"] = [
            rung for rung in ladder.rungs if _required_classes(rung) not in (None, classes)
        ]
    return {why: rungs for why, rungs in found.items() if rungs}


def _required_classes(rung: Rung) -> int | None:
    """Return the only number of classes that the rung's post-hoc method takes."""
    name = rung.slots.get("posthoc", {}).get("method")
    return METHODS[name].classes if name is not None else None


def _trains_network(rung: Rung) -> bool:
    own = rung.slots.get("network", {})
    return rung.adds_head_epochs or any((key, own[key]) != ("method", "ce") for key in own)


def _runs_network(rung: Rung) -> bool:
    own = rung.slots.get("head", {})
    return bool({own.get("bn_mode", "eval"), own.get("augment", "none")} - {"eval", "none"})


def _collision(first: Rung, second: Rung, overrides: Settings) -> UserError:
    """Build the error for two rungs that are the same trial, naming the settings that cause it."""
    # Not None, which a rung may set.
    absent = object()
    one, other = flatten(first.slots), flatten(second.slots)
    blamed = {
        setting: value
        for setting, value in flatten(overrides).items()
        if one.get(setting, absent) != other.get(setting, absent)
    }
    words = (f"{setting}={value}" for setting, value in blamed.items())
    cause = f" with {' '.join(words)}" if blamed else ""
    mend = "use another value or leave it out" if blamed else "leave one of them out"
    return UserError(
        f"{first.label!r} and {second.label!r} are the same trial{cause}; {mend}",
        next(iter(blamed), None),
    )


def build_spec(rung: Rung, request: ResolvedRequest, seeds: tuple[int, int]) -> TrialSpec:
    """Build the trial spec of a rung, whose settings override the request's, for two seeds."""
    seed_of = dict(zip(("network", "head"), seeds, strict=True))
    slots: dict[str, dict[str, Any]] = {}
    for slot in SLOT_TYPES:
        own, overrides = rung.slots.get(slot, {}), request.overrides.get(slot, {})
        if slot in rung.slots or slot in ("data", "network"):
            # Settings that its methods lack are for other rungs.
            known = set(known_keys(slot, method_of(slot, own)))
            slots[slot] = {**{k: v for k, v in overrides.items() if k in known}, **own}
            if slot in seed_of:
                # It overrides everything: a seed is an axis of the design, not a setting.
                slots[slot]["seed"] = seed_of[slot]
    return resolve_spec(slots, request.recipe, request.own_recipes)


def _longer(spec: TrialSpec, epochs: int) -> TrialSpec:
    """Train the network longer; changes at certain epochs stay at these epochs."""
    slots = spec.model_dump()
    network, whole = slots["network"], spec.network.epochs + epochs
    milestones = [share * spec.network.epochs / whole for share in spec.network.milestones]
    slots["network"] = {**network, "epochs": whole, "milestones": milestones}
    if spec.network.augment_until < 1:
        slots["network"]["augment_until"] = spec.network.augment_until * spec.network.epochs / whole
    return TrialSpec.build(**slots)


def refuse_unknown(rungs: Sequence[Rung], overrides: Settings) -> None:
    """Refuse settings that no rung has."""
    for slot, own in overrides.items():
        known = find_keys(rungs, slot)
        for key in own:
            if key not in known:
                raise UserError(
                    f"no rung has a setting {slot}.{key}{nearest(key, sorted(known))}",
                    f"{slot}.{key}",
                )


def find_keys(rungs: Sequence[Rung], slot: str) -> set[str]:
    """Return the settings of a slot itself and those that some rung has."""
    return {*known_keys(slot, None), *_known_keys(rungs, slot)}


def refuse_unused(rungs: Sequence[Rung], overrides: Settings) -> None:
    """Refuse settings that change no rung."""
    for slot, own in overrides.items():
        known = list(_known_keys(rungs, slot))
        for key in own:
            setting = f"{slot}.{key}"
            if key not in known:
                hint = nearest(key, known) if known else f": none has a {slot} method; leave it out"
                raise UserError(f"no rung has a setting {setting}{hint}", setting)
            having = [rung for rung in rungs if key in _known_keys([rung], slot)]
            if all(key in rung.slots.get(slot, {}) for rung in having):
                raise UserError(
                    f"every rung with the setting {setting} sets it itself; leave it out", setting
                )


def _known_keys(rungs: Sequence[Rung], slot: str) -> Iterator[str]:
    """Yield the settings of a slot that some rung fills."""
    for rung in rungs:
        if slot in rung.slots or slot not in ("head", "posthoc"):
            yield from known_keys(slot, method_of(slot, rung.slots.get(slot, {})))


def build_comparison(pipelines: Sequence[str], settings: Sequence[Settings] = ()) -> Ladder:
    """Build a ladder of pipelines such as ``ls+mac_cal+temperature``, with settings of each."""
    settings = settings or [{}] * len(pipelines)
    rungs = tuple(
        build_rung(name, own, "variant" if index else "base")
        for index, (name, own) in enumerate(zip(pipelines, settings, strict=True))
    )
    labels = [rung.label for rung in rungs]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label!r} is given twice; give it once")
    name = "compare " + " ".join(labels)
    return Ladder(name, "Methods side by side", rungs, is_named=True)


def build_kind_comparison(kind: MethodKind) -> Ladder:
    """Build a ladder of all methods of a kind at their defaults and the unchanged network."""
    kinds = {name: METHODS.facts(name).get("kind") or METHODS[name].kind for name in METHODS}
    # Plain cross entropy is the unchanged network.
    names = [name for name in METHODS if kinds[name] == kind and name != "ce"]
    vanilla = Rung("vanilla", "the network as it is", kind="base")
    rungs = (vanilla, *(build_rung(name, {}, "variant") for name in names))
    labels = " ".join(rung.label for rung in rungs)
    printed = "post-hoc" if kind == "posthoc" else kind
    return Ladder(f"compare {labels}", f"Every {printed} method side by side", rungs)


def find_method(name: str) -> MethodInfo:
    """Return a method of a pipeline; tables and papers call plain cross entropy vanilla."""
    return METHODS["ce" if name == "vanilla" and name not in METHODS else name]


def build_rung(name: str, settings: Settings, kind: Kind) -> Rung:
    """Build a rung of ``build_comparison``; its settings are part of its label."""
    methods = [find_method(part) for part in name.split("+")]
    slots: dict[str, Mapping[str, Any]] = {}
    for method in methods:
        if method.kind in slots:
            raise UserError(f"{name!r} has two {method.kind} methods; use at most one of each kind")
        slots[method.kind] = {"method": method.name}
    label = name
    for slot, own in settings.items():
        if slot not in slots and slot != "network":
            key = next(iter(own))
            raise UserError(f"{name!r} has no {slot} method to set {key!r} for", f"{slot}.{key}")
        label += "".join(f" {key}={value}" for key, value in own.items())
    refuse_unknown([Rung(name, "", slots)], settings)
    for slot, own in settings.items():
        slots[slot] = {**own, **slots.get(slot, {})}
    return Rung(label, " + ".join(method.title for method in methods), slots, kind=kind)
