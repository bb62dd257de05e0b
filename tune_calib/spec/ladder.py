"""Records of ladders, ladders of named methods, and their expansion to trial specs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.datasets import Settings, flatten
from tune_calib.spec.methods import METHODS, MOST_QUADRATIC, MethodKind
from tune_calib.spec.names import POOL
from tune_calib.spec.resolved import ResolvedRequest, refuse_large
from tune_calib.spec.settings import known_keys, method_of, own_recipe, resolve_spec
from tune_calib.spec.slots.network import Pool
from tune_calib.spec.slots.pool import PoolSlot
from tune_calib.spec.trial import SLOT_TYPES, TrialSpec
from tune_calib.text import nearest

Kind = Literal["base", "step", "variant", "control"]
Cell = frozenset[str]
"""Names of the factors of a cell of a design."""


@dataclass(frozen=True)
class Factor:
    """An ingredient of a step in designs (``spec.design``)."""

    name: str
    needs: tuple[str, ...] = ()  # earlier factors without which it cannot act
    # Settings of a ladder that ends with it; those of the rung if empty.
    slots: Settings = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Design:
    """The combinations of the steps of a ladder that are run."""

    name: str
    factors: tuple[Factor, ...]  # in the order of the ladder, with all that they need
    cells: Mapping[str, tuple[Cell, ...]]  # cells with equal trials, by the label of their rung
    posthoc: str | None = None  # method of a second rung of each cell
    invalid: Mapping[str, str] = field(default_factory=dict)  # reasons by the label of a cell


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
    factors: tuple[Factor, ...] = ()  # of a step; one named after its label if empty
    pool: tuple[str, ...] = ()  # network methods that it pools


@dataclass(frozen=True)
class Ladder:
    """An ordered list of rungs, each adding one ingredient to the one before."""

    name: str
    title: str  # one line
    rungs: tuple[Rung, ...]  # in order, controls last
    published: str | None = None  # ``paper/table`` of the packaged published results
    # The paper's table or figure for which it exists and below which it is listed; None if it is a
    # study of its own.
    table: str | None = None
    head_recipe: str | None = None  # head method whose authors' recipe trains all heads
    is_named: bool = False  # the user named each rung, so none may be left out
    design: Design | None = None  # its rungs are the cells of a design


LADDERS: Registry[Ladder] = Registry("ladder", "ablations", Ladder)


@dataclass(frozen=True)
class PlannedTrial:
    """A trial spec and the rung of a run that it belongs to."""

    spec: TrialSpec
    rung: int
    label: str

    def plain(self) -> dict[str, Any]:
        spec = self.spec.model_dump(mode="json")
        spec["network"]["execution"] = self.spec.network.execution
        return {**vars(self), "spec": spec}


def expand(ladder: Ladder, request: ResolvedRequest) -> list[PlannedTrial]:
    overrides = request.overrides
    cells = list(product(request.seeds.pairs(), request.draws))
    rungs = select_rungs(ladder, request)
    if not request.controls:
        rungs = [rung for rung in rungs if rung.kind != "control"]
    # Before the specs are built: validating and hashing a million of them takes a while.
    refuse_large(len(rungs) * len(cells))
    head = overrides.get("head", {})
    if ladder.head_recipe is not None:
        dataset = overrides.get("data", {}).get("dataset", "")
        head = {**own_recipe(METHODS[ladder.head_recipe], dataset), **head}
    request = replace(request, overrides={**overrides, "head": head})
    heads = [rung for rung in rungs if "head" in rung.slots]
    trials: dict[str, PlannedTrial] = {}
    for index, rung in enumerate(rungs):
        specs = build_pools(rung, request) if rung.pool else []
        for pair, draw in () if rung.pool else cells:
            if request.imports:
                record = draw["imported"]
                if _find_misfit(ladder, rung, record["classes"], record["width"] > 0):
                    continue
            spec = build_spec(rung, request, pair, draw)
            if rung.adds_head_epochs:
                # The epochs of the first head: all heads of such a ladder have the same recipe.
                first_head: Any = build_spec(heads[0], request, pair, draw).head
                spec = _longer(spec, first_head.epochs)
            specs.append(spec)
        for spec in specs:
            # A rung without a head is one trial for all head seeds, and is kept once; so is one
            # that the draw does not change.
            first = trials.setdefault(spec.hash, PlannedTrial(spec, index, rung.label))
            if first.rung != index:
                raise _collision(rungs[first.rung], rung, overrides)
    return list(trials.values())


def select_rungs(ladder: Ladder, request: ResolvedRequest) -> list[Rung]:
    absent = []
    for left_out in find_left_out(ladder, request).values():
        for rung in left_out:
            # It is left out of all imports, or of the only data.
            misfits = [_find_misfit(ladder, rung, *outputs) for outputs in request.outputs]
            if not any(misfits) or all(misfits):
                absent.append(rung)
    if absent and ladder.is_named:
        need = "needs the network itself" if _runs_network(absent[0]) else "trains the network"
        raise UserError(
            f"{absent[0].label!r} {need}, and a frozen one (network.epochs=0) is not trained; "
            "leave it out",
            "network.epochs",
        )
    rungs = [rung for rung in ladder.rungs if rung not in absent]
    if all(rung.kind == "control" for rung in rungs):
        raise UserError(
            f"every rung of {ladder.name} trains the network, and a frozen one (network.epochs=0) "
            "is not trained: nothing is left to run",
            "network.epochs",
        )
    return rungs


def find_left_out(ladder: Ladder, request: ResolvedRequest) -> dict[str, list[Rung]]:
    """Return the rungs that cannot be run as requested, or not on all imports, by the reason."""
    left_out: dict[str, list[Rung]] = defaultdict(list)
    for rung in ladder.rungs if request.is_frozen else ():
        trains_network = rung.adds_head_epochs
        trains_network |= rung.slots.get("network", {}) not in ({}, {"method": "ce"})
        if request.is_imported and (trains_network or _runs_network(rung)):
            left_out["they need the network itself"].append(rung)
        elif trains_network:
            left_out["they train the network"].append(rung)
    if any("posthoc" in rung.slots for rung in ladder.rungs) and not ladder.is_named:
        outputs = request.outputs
        for rung in ladder.rungs:
            counts: dict[str, list[str]] = defaultdict(list)
            for count, has_features in outputs:
                if misfit := _find_misfit(ladder, rung, count, has_features):
                    counts[misfit].append(str(count))
            for misfit, misfits in counts.items():
                left_out[misfit.format(", ".join(dict.fromkeys(misfits)))].append(rung)
    if ladder.design is not None:
        for label, reason in ladder.design.invalid.items():
            left_out[reason].append(Rung(label, ""))
    return dict(left_out)


def _find_misfit(ladder: Ladder, rung: Rung, classes: int, has_features: bool) -> str | None:
    """Return why a rung cannot be run with a number of classes, or without features."""
    name = rung.slots.get("posthoc", {}).get("method")
    # If the user named a rung for another number of classes, its spec is refused instead.
    if name is None or ladder.is_named:
        return None
    if METHODS[name].classes not in (None, classes):
        return "they do not take {} classes"
    if METHODS[name].is_quadratic and classes > MOST_QUADRATIC:
        return "a matrix of parameters is too large for {} classes"
    if METHODS[name].implementation.reads_features and not has_features:
        return "they read features, which imported logits lack"
    return None


def _runs_network(rung: Rung) -> bool:
    head = rung.slots.get("head", {})
    return (head.get("bn_mode", "eval"), head.get("augment", "none")) != ("eval", "none")


def _collision(first: Rung, second: Rung, overrides: Settings) -> UserError:
    first_settings, second_settings = flatten(first.slots), flatten(second.slots)
    mistake = f"{first.label!r} and {second.label!r} are the same trial"
    for setting, value in flatten(overrides).items():
        if first_settings.get(setting, ...) != second_settings.get(setting, ...):
            message = f"{mistake} with {setting}={value}; use another or leave it out"
            return UserError(message, setting)
    return UserError(f"{mistake}; leave one of them out")


def build_spec(
    rung: Rung,
    request: ResolvedRequest,
    seeds: tuple[int, int],
    draw: Mapping[str, Any] = MappingProxyType({}),
) -> TrialSpec:
    """Build the trial spec of a rung, whose settings override the request's, for two seeds.

    ``draw`` holds settings of the data that vary as seeds do (``ResolvedRequest.draws``).
    """
    # These override everything: a seed is an axis of the design, not a setting.
    axes = {"data": draw, "network": {"seed": seeds[0]}, "head": {"seed": seeds[1]}}
    slots: dict[str, dict[str, Any]] = {}
    for slot in SLOT_TYPES:
        if slot not in rung.slots and slot not in ("data", "network"):
            continue
        settings, overrides = rung.slots.get(slot, {}), request.overrides.get(slot, {})
        # Settings that its methods lack are for other rungs.
        keys = set(known_keys(slot, method_of(slot, settings)))
        slots[slot] = {key: value for key, value in overrides.items() if key in keys}
        slots[slot] |= {**settings, **axes.get(slot, {})}
    spec = resolve_spec(slots, request.recipe, request.own_recipes)
    if not draw or spec.posthoc is not None:
        return spec
    # A network's own outputs do not depend on the draw, and those of a head only on select.
    data = spec.network_data
    if spec.head is not None:
        data = spec.data.model_copy(update={"calib_size": data.calib_size})
    return spec.model_copy(update={"data": data})


def _longer(spec: TrialSpec, epochs: int) -> TrialSpec:
    """Train the network longer; changes at certain epochs stay at these epochs."""
    slots, network = spec.model_dump(), spec.network
    total = network.epochs + epochs
    milestones = [share * network.epochs / total for share in network.milestones]
    slots["network"] |= {"epochs": total, "milestones": milestones}
    slots["network"]["execution"] = network.execution
    if network.augment_until < 1:
        slots["network"]["augment_until"] = network.augment_until * network.epochs / total
    return TrialSpec.build(**slots)


def build_pools(rung: Rung, request: ResolvedRequest) -> list[TrialSpec]:
    """Build the trial specs of a rung that pools networks: over seeds, imports or methods."""
    settings = PoolSlot.build(**{**request.overrides.get("pool", {}), **rung.slots["pool"]})
    slots = {"posthoc": {"method": settings.posthoc}} if settings.posthoc else {}
    of_draw: dict[tuple[Any, ...], list[Any]] = {}
    for draw in request.draws:
        cells = of_draw.setdefault((draw.get("split_seed"), draw.get("calib_size")), [])
        # Heads are not pooled, so each network counts once.
        cells += [((seed, 0), draw) for seed in dict.fromkeys(request.seeds.network)]
    specs = []
    for cells in of_draw.values():
        size = settings.size or (len(cells) if len(rung.pool) == 1 else 1)
        if size * len(rung.pool) < 2:
            raise UserError(f"{rung.label!r} has one member; give at least two `seeds` or methods")
        if len(cells) % size:
            message = f"{len(cells)} seeds are not divided into pools of {size}; give a multiple"
            raise UserError(message, "pool.size")
        for first in range(0, len(cells), size):
            members = []
            for cell, method in product(cells[first : first + size], rung.pool):
                member = Rung(method, "", {"network": {"method": method}, **slots})
                members.append(build_spec(member, request, *cell))
            spec = build_spec(rung, request, *cells[first])
            pool = Pool(
                members=tuple(spec.data.import_record or spec.network for spec in members),
                average=settings.average,
                posthoc=members[0].posthoc,
            )
            network = spec.network.model_copy(update={"pool": pool})
            specs.append(TrialSpec(**{**dict(spec), "network": network}))
    return specs


def find_keys(rungs: Sequence[Rung], slot: str) -> set[str]:
    return {*known_keys(slot, None), *_rung_keys(rungs, slot)}


def refuse_unused(rungs: Sequence[Rung], overrides: Settings) -> None:
    for setting in flatten(overrides):
        slot, _, key = setting.partition(".")
        keys = _rung_keys(rungs, slot)
        if not keys:
            message = f"no rung has a setting {setting}: none has a {slot} method; leave it out"
            raise UserError(message, setting)
        if key not in keys:
            raise UserError(f"no rung has a setting {setting}{nearest(key, keys)}", setting)
        free_rungs = [rung for rung in rungs if key not in rung.slots.get(slot, {})]
        if key not in _rung_keys(free_rungs, slot):
            message = f"every rung with the setting {setting} sets it itself; leave it out"
            raise UserError(message, setting)


def _rung_keys(rungs: Sequence[Rung], slot: str) -> list[str]:
    keys: list[str] = []
    for rung in rungs:
        if slot in rung.slots or slot in ("data", "network"):
            keys += known_keys(slot, method_of(slot, rung.slots.get(slot, {})))
    return keys


def build_comparison(pipelines: Sequence[str], settings: Sequence[Settings] = ()) -> Ladder:
    """Build a ladder of pipelines such as ``ls+mac_cal+temperature``, with settings of each."""
    settings = settings or [{}] * len(pipelines)
    rungs: dict[str, Rung] = {}
    for pipeline, overrides in zip(pipelines, settings, strict=True):
        kind: Kind = "variant" if rungs else "base"
        rung = build_rung(pipeline, overrides, kind)
        if rung.label in rungs:
            raise UserError(f"{rung.label!r} is given twice; give it once")
        rungs[rung.label] = rung
    name = "compare " + " ".join(rungs)
    return Ladder(name, "Methods side by side", tuple(rungs.values()), is_named=True)


def build_kind_comparison(kind: MethodKind) -> Ladder:
    """Build a ladder of all methods of a kind, their variants and the unchanged network."""
    rungs = [Rung("vanilla", "the network as it is", kind="base")]
    for name in METHODS:
        kind_of_method = METHODS.facts(name).get("kind") or METHODS[name].kind
        # Plain cross entropy is the unchanged network.
        if kind_of_method == kind and name != "ce":
            for settings in ({}, *METHODS[name].variants):
                rungs.append(build_rung(name, {kind: settings}, "variant"))
    labels = " ".join(map(attrgetter("label"), rungs))
    printed_kind = "post-hoc" if kind == "posthoc" else kind
    title = f"Every {printed_kind} method side by side"
    return Ladder(f"compare {labels}", title, tuple(rungs))


def has_setting(pipeline: str, name: str) -> bool:
    slot, _, key = name.partition(".")
    rung = build_rung(pipeline, {}, "variant")
    return slot in ("network", *rung.slots) and key in _rung_keys([rung], slot)


def build_rung(name: str, settings: Settings, kind: Kind) -> Rung:
    """Build a rung of ``build_comparison``; its settings are part of its label."""
    parts, pooled = name.split("+"), list[str]()
    slots: dict[str, Mapping[str, Any]] = {}
    if parts[0].startswith(POOL):
        pooled = [METHODS[part].name for part in parts[0].removeprefix(POOL).split(":")]
        parts[0], slots["pool"] = pooled[0], {}
    methods = [METHODS[part] for part in parts]
    if pooled and {METHODS[part].kind for part in pooled} != {"network"}:
        raise UserError(f"{name!r} pools networks, so each name before + is a network method")
    for method in methods:
        if method.kind in slots:
            raise UserError(f"{name!r} has two {method.kind} methods; use at most one of each kind")
        slots[method.kind] = {"method": method.name}
    label = name
    for slot, overrides in settings.items():
        if slot not in slots and slot != "network":
            key = next(iter(overrides))
            raise UserError(f"{name!r} has no {slot} method to set {key!r} for", f"{slot}.{key}")
        for key, value in overrides.items():
            number = float(f"{value:.6g}") if isinstance(value, float) else value
            label += f" {key}={number}"
    refuse_unused([Rung(name, "", slots)], settings)
    for slot, overrides in settings.items():
        slots[slot] = {**overrides, **slots.get(slot, {})}
    titles = [method.title for method in methods]
    if pooled:
        titles[0] = "Pool of " + ", ".join(METHODS[part].title for part in pooled)
    return Rung(label, " + ".join(titles), slots, kind=kind, pool=tuple(pooled))
