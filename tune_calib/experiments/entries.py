"""From a sweep file to the ladders and searches that it asks for, checked before any starts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tune_calib.errors import UserError
from tune_calib.experiments.file import ReadFile
from tune_calib.results.selection import BASELINE
from tune_calib.spec.asked import Asked, Seeds, refuse_large
from tune_calib.spec.datasets import Settings
from tune_calib.spec.experiment import (
    Entry,
    Method,
    SearchOptions,
    SeedCounts,
    TrialResources,
)
from tune_calib.spec.ladder import (
    LADDERS,
    Ladder,
    PlannedTrial,
    Rung,
    expand,
    refuse_unknown,
    refuse_unused,
)
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.pipelines import all_of, pipeline, side_by_side
from tune_calib.spec.settings import refuse_misfit
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.look import CloserLook
from tune_calib.tuning.search.candidates import Candidates
from tune_calib.tuning.search.objective import Objective


@dataclass(frozen=True)
class Work:
    """One ladder, or one search, on one data set and backbone.

    Attributes:
        name: of its folder in OUT.
        position: of its entry in the file.
        asked: settings, data set and backbone among them, and seeds.
        gpus: of one Ray trial.
        ladder: what is run, unless it is a search.
        method: whose space is searched, if it is a search.
        search: how, if it is a search.
        look: what finished trials of a ladder are looked at beside.
    """

    name: str
    position: Position
    asked: Asked
    gpus: float
    ladder: Ladder | None = None
    method: str = ""
    search: SearchOptions | None = None
    look: CloserLook = field(default_factory=CloserLook)

    def check(self) -> None:
        """Write every spec out once.

        Raises:
            UserError: a setting is unknown or out of range.
        """
        if self.search is None:
            self.planned()
            return
        Objective(self.search.metric, self.search.guard)
        refuse_large((self.search.trials or 0) * len(self.asked.seeds.pairs()))
        refuse_large(self.search.heads or 0)
        candidates = self.candidates()
        candidates.refuse_empty()
        if self.search.heads is not None and candidates.kind != "head":
            raise UserError(f"{self.method} trains no heads; give the budget in trials or hours")

    def planned(self) -> list[PlannedTrial]:
        """The trials of a ladder.

        Raises:
            UserError: as ``expand``.
        """
        assert self.ladder is not None
        return expand(self.ladder, self.asked)

    def candidates(self) -> Candidates:
        """What a search tries."""
        return Candidates(self.method, self.asked)


def works_of(file: ReadFile) -> list[Work]:
    """Everything that a sweep file asks for, in its order.

    Raises:
        UserError: a setting is unknown or out of range, with its position in the file.
    """
    refuse_misfits(file)
    _refuse_unread(file)
    works = [work for name in file.content.entries for work in _of_entry(file, name)]
    names = [work.name for work in works]
    for work in works:
        if names.count(work.name) > 1:
            raise file.source.error(work.position, f"two folders would be named {work.name!r}")
        _check(file, work)
    return works


def refuse_misfits(file: ReadFile) -> None:
    """Refuse entries whose recipe does not fit them, before anything slow is imported.

    Raises:
        UserError: there is one; with its position in the file.
    """
    whole = file.content
    for name, entry in whole.entries.items():
        settings = merged(whole.set.by_slot(), entry.set.by_slot())
        if settings.get("data", {}).get("imported") is not None:
            continue
        for dataset, backbone in _places(file, entry):
            if dataset == IMPORTED:
                continue
            with _blaming_recipe(file, ("entries", name), entry):
                asked = merged(settings, _named(dataset, backbone))
                refuse_misfit(asked, entry.recipe or whole.recipe)


def _places(file: ReadFile, entry: Entry) -> Iterator[tuple[str, str | None]]:
    """Yield each data set of an entry with each of its backbones."""
    for dataset in entry.datasets or file.content.datasets or ("digits",):
        for backbone in entry.backbones or file.content.backbones or (None,):
            yield dataset, backbone


def _named(dataset: str, backbone: str | None) -> dict[str, dict[str, Any]]:
    network = {} if backbone is None else {"network": {"backbone": backbone}}
    return {"data": {"dataset": dataset}, **network}


def _of_entry(file: ReadFile, name: str) -> Iterator[Work]:
    entry, whole = file.content.entries[name], file.content
    position: Position = ("entries", name)
    ladder = _ladder(file, position, entry)
    counts = (entry.search and entry.search.seeds) or entry.seeds or whole.seeds or SeedCounts()
    seeds = _seeds(file, position, counts)
    gpus = (entry.resources or whole.resources or TrialResources()).gpus
    look = CloserLook(
        entry.shift if entry.shift is not None else whole.shift or (),
        entry.bootstrap if entry.bootstrap is not None else whole.bootstrap or 0,
    )
    for dataset, backbone in _places(file, entry):
        tail = "-".join([dataset, *([backbone] if backbone else [])])
        if entry.search is None:
            given = _given(file, entry, _rungs(entry), dataset, backbone)
            asked = _asked(file, position, entry, given, seeds)
            yield Work(f"{name}-{tail}", position, asked, gpus, ladder, look=look)
            continue
        for index, method in enumerate(entry.methods or ()):
            given = _given(file, entry, _rungs_of([method.method]), dataset, backbone)
            given = merged(given, method.set.by_slot())
            yield Work(
                name=f"{name}-{method.method}-{tail}",
                position=(*position, "methods", index),
                asked=_asked(file, position, entry, given, seeds),
                gpus=gpus,
                method=method.method,
                search=entry.search,
            )


def _asked(
    file: ReadFile, position: Position, entry: Entry, given: Settings, seeds: Seeds
) -> Asked:
    """What an entry asks for, with its recipe, or that of the file."""
    own_recipes = _own_recipes(file, entry)
    try:
        asked = Asked(given, seeds, controls=entry.controls, own_recipes=own_recipes)
    except UserError as error:
        raise file.source.error(position, str(error)) from None
    with _blaming_recipe(file, position, entry):
        return asked.suited(entry.recipe or file.content.recipe)


@contextmanager
def _blaming_recipe(file: ReadFile, position: Position, entry: Entry) -> Iterator[None]:
    """Name the recipe's position in the file; that of the entry where no recipe is named."""
    at: Position = (*position, "recipe") if entry.recipe else ("recipe",)
    try:
        yield
    except UserError as error:
        is_named = entry.recipe or file.content.recipe
        raise file.source.error(at if is_named else position, str(error)) from None


def _own_recipes(file: ReadFile, entry: Entry) -> bool:
    """Whether each method has its own recipe; the rungs of a ladder share one."""
    asked = file.content.own_recipes if entry.own_recipes is None else entry.own_recipes
    return bool(asked and entry.ladder is None)


def _seeds(file: ReadFile, position: Position, counts: SeedCounts) -> Seeds:
    """Seeds by their counts."""
    try:
        return Seeds.count(counts.both, counts.networks, counts.heads)
    except UserError as error:
        raise file.source.error((*position, "seeds"), str(error)) from None


def _ladder(file: ReadFile, position: Position, entry: Entry) -> Ladder | None:
    """The ladder of an entry that is not a search."""
    if entry.ladder is not None:
        ladder: Ladder = LADDERS[entry.ladder]
        return ladder
    if entry.all is not None:
        return all_of(entry.all)
    methods = entry.methods or ()
    if entry.search is not None:
        _refuse_pipelines(file, position, methods)
        return None
    settings = [method.set.by_slot() for method in methods]
    for index, method in enumerate(methods):
        at = (*position, "methods", index)
        alone = partial(pipeline, method.method, kind="variant")
        _blamed(file, alone, settings[index], [(at, settings[index])], at)
    try:
        return side_by_side([method.method for method in methods], settings)
    except UserError as error:
        raise file.source.error((*position, "methods"), str(error)) from None


def _refuse_pipelines(file: ReadFile, position: Position, methods: Sequence[Method]) -> None:
    names = [method.method for method in methods]
    for index, name in enumerate(names):
        if "+" in name:
            raise file.source.error(
                (*position, "methods", index), f"{name!r}: a search takes one method"
            )
        if names.count(name) > 1:
            raise file.source.error((*position, "methods", index), f"{name!r} is named twice")


def _given(
    file: ReadFile, entry: Entry, rungs: Sequence[Rung], dataset: str, backbone: str | None
) -> Settings:
    """Settings of the file, then of the entry, as far as some rung knows them."""
    asked = merged(file.content.set.by_slot(), entry.set.by_slot())
    known = {
        slot: {key: value for key, value in settings.items() if _knows(rungs, slot, key)}
        for slot, settings in asked.items()
    }
    return merged(known, _named(dataset, backbone))


def merged(*settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings by slot; later ones stand above earlier ones."""
    merged: dict[str, dict[str, Any]] = {}
    for given in settings:
        for slot, asked in given.items():
            merged[slot] = {**merged.get(slot, {}), **asked}
    return {slot: asked for slot, asked in merged.items() if asked}


def _rungs(entry: Entry) -> Sequence[Rung]:
    """Rungs that know the settings of an entry."""
    if entry.ladder is not None:
        rungs: Sequence[Rung] = LADDERS[entry.ladder].rungs
        return rungs
    if entry.all is not None:
        return all_of(entry.all).rungs
    return _rungs_of([method.method for method in entry.methods or ()])


def _rungs_of(pipelines: Sequence[str]) -> list[Rung]:
    """A rung a method, and the network under those that train none."""
    parts = sorted({part for name in pipelines for part in name.split("+")})
    return [
        Rung(BASELINE, ""),
        *(Rung(part, "", {METHODS[part].kind: {"method": part}}) for part in parts),
    ]


def _knows(rungs: Sequence[Rung], slot: str, key: str) -> bool:
    try:
        refuse_unknown(rungs, {slot: {key: None}})
    except UserError:
        return False
    return True


def _refuse_unread(file: ReadFile) -> None:
    """Refuse a setting of the file that no entry knows, or of an entry that no method knows."""
    entries = file.content.entries
    every = [rung for entry in entries.values() for rung in _rungs(entry)]
    asked: list[tuple[Position, Settings, Sequence[Rung]]] = [
        ((), file.content.set.by_slot(), every),
        *((("entries", k), e.set.by_slot(), _rungs(e)) for k, e in entries.items()),
    ]
    for position, settings, rungs in asked:
        for slot, own in settings.items():
            for key, value in own.items():
                try:
                    refuse_unused(rungs, {slot: {key: value}})
                except UserError as error:
                    raise file.source.error((*position, "set", slot, key), str(error)) from None


def _check(file: ReadFile, work: Work) -> None:
    entry, data = file.content.entries[str(work.position[1])], work.asked.given["data"]
    sources: list[tuple[Position, Settings]] = [(work.position, {})]
    if work.search is not None and entry.methods:
        sources = [(work.position, entry.methods[int(work.position[-1])].set.by_slot())]
    sources += [(work.position[:2], entry.set.by_slot()), ((), file.content.set.by_slot())]
    _blamed(
        file,
        lambda given: replace(work, asked=replace(work.asked, given=given)).check(),
        work.asked.given,
        sources,
        work.position,
        {"data": {key: data[key] for key in ("dataset", "imported") if key in data}},
    )


def _blamed(
    file: ReadFile,
    build: Callable[[Settings], Any],
    given: Settings,
    sources: Sequence[tuple[Position, Settings]],
    position: Position,
    always: Settings | None = None,
) -> None:
    """Build something from settings; what fails alike alone is named with its position in the file.

    Args:
        file: the sweep file.
        build: raises UserError where a setting is wrong.
        given: all settings.
        sources: which settings stand below which position.
        position: named where no single setting is to blame.
        always: settings that every attempt needs.
    """
    try:
        build(given)
        return
    except UserError as error:
        whole = error
    for below, settings in sources:
        for slot, asked in settings.items():
            for key in asked:
                if key not in given.get(slot, {}):
                    continue
                try:
                    build(merged(always or {}, {slot: {key: asked[key]}}))
                except UserError as error:
                    # What is wrong alone may be right beside others, e.g. epochs=0 and weights.
                    if str(error) == str(whole):
                        raise file.source.error((*below, "set", slot, key), str(error)) from None
    raise file.source.error(position, str(whole)) from None
