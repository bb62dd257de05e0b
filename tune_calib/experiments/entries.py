"""From a sweep file to the ladders and searches that it asks for, checked before any starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tune_calib.errors import UserError
from tune_calib.experiments.file import ReadFile
from tune_calib.results.selection import BASELINE
from tune_calib.spec.datasets import Settings
from tune_calib.spec.experiment import (
    Entry,
    SearchOptions,
    SeedCounts,
    TrialResources,
)
from tune_calib.spec.ladder import (
    Ladder,
    PlannedTrial,
    Rung,
    expand,
    refuse_unknown,
    refuse_unused,
)
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.pipelines import build_rung
from tune_calib.spec.resolved import ResolvedRequest, Seeds, refuse_large
from tune_calib.spec.settings import refuse_misfit
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.extra import ExtraEvaluations
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
    asked: ResolvedRequest
    gpus: float
    ladder: Ladder | None = None
    method: str = ""
    search: SearchOptions | None = None
    look: ExtraEvaluations = field(default_factory=ExtraEvaluations)

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
    """Return everything that an experiment file asks for, in its order.

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
        entry = file.content.entries[str(work.position[1])]
        sources = [(work.position[:2], entry.set.by_slot()), ((), file.content.set.by_slot())]
        if work.search is not None and entry.methods:
            own = entry.methods[int(work.position[-1])].set.by_slot()
            sources.insert(0, (work.position, own))
        with file.source.at(work.position, *sources):
            work.check()
    return works


def refuse_misfits(file: ReadFile) -> None:
    """Refuse entries whose recipe does not fit them, before anything slow is imported.

    Raises:
        UserError: there is one; with its position in the file.
    """
    for name, entry in file.content.entries.items():
        settings = merged(file.content.set.by_slot(), entry.set.by_slot())
        if settings.get("data", {}).get("imported") is not None:
            continue
        for dataset, backbone in _places(file, entry):
            if dataset != IMPORTED:
                with file.source.at(_of_recipe(file, name)):
                    asked = merged(settings, _named(dataset, backbone))
                    refuse_misfit(asked, entry.recipe or file.content.recipe)


def _of_recipe(file: ReadFile, name: str) -> Position:
    """Return where the recipe of an entry stands; the entry where no recipe is named."""
    if file.content.entries[name].recipe:
        return ("entries", name, "recipe")
    return ("recipe",) if file.content.recipe else ("entries", name)


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
    ladder = None if entry.search else _ladder(file, position, entry)
    counts = (entry.search and entry.search.seeds) or entry.seeds or whole.seeds or SeedCounts()
    with file.source.at((*position, "seeds")):
        seeds = Seeds.count(counts.both, counts.networks, counts.heads)
    gpus = (entry.resources or whole.resources or TrialResources()).gpus
    look = ExtraEvaluations(
        entry.shift if entry.shift is not None else whole.shift or (),
        entry.bootstrap if entry.bootstrap is not None else whole.bootstrap or 0,
    )
    wants_own = whole.own_recipes if entry.own_recipes is None else entry.own_recipes
    # The rungs of a ladder share one recipe.
    own_recipes = bool(wants_own and entry.ladder is None)

    def asked_of(rungs: Sequence[Rung], *settings: Settings) -> ResolvedRequest:
        # Settings of the file, then of the entry, as far as some rung knows them.
        known = {
            slot: {key: value for key, value in given.items() if _knows(rungs, slot, key)}
            for slot, given in merged(whole.set.by_slot(), entry.set.by_slot()).items()
        }
        given = merged(known, *settings)
        with file.source.at(position):
            asked = ResolvedRequest(given, seeds, controls=entry.controls, own_recipes=own_recipes)
        with file.source.at(_of_recipe(file, name)):
            return asked.with_recipe(entry.recipe or whole.recipe)

    for dataset, backbone in _places(file, entry):
        place = _named(dataset, backbone)
        tail = "-".join([dataset, *([backbone] if backbone else [])])
        if ladder is not None:
            asked = asked_of(_rungs(entry), place)
            yield Work(f"{name}-{tail}", position, asked, gpus, ladder, look=look)
            continue
        for index, method in enumerate(entry.methods or ()):
            yield Work(
                name=f"{name}-{method.method}-{tail}",
                position=(*position, "methods", index),
                asked=asked_of(_rungs_of([method.method]), place, method.set.by_slot()),
                gpus=gpus,
                method=method.method,
                search=entry.search,
            )


def _ladder(file: ReadFile, position: Position, entry: Entry) -> Ladder:
    """Return the ladder of an entry that is not a search."""
    for index, method in enumerate(entry.methods or ()):
        at, settings = (*position, "methods", index), method.set.by_slot()
        with file.source.at(at, (at, settings)):
            build_rung(method.method, settings, "variant")
    with file.source.at((*position, "methods")):
        return entry.build_ladder()


def _rungs(entry: Entry) -> Sequence[Rung]:
    """Return rungs that know the settings of an entry."""
    if entry.methods is None:
        return entry.build_ladder().rungs
    return _rungs_of([method.method for method in entry.methods])


def _rungs_of(pipelines: Sequence[str]) -> list[Rung]:
    """Return a rung a method, and the network under those that train none."""
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
        with file.source.at(position, (position, settings)):
            refuse_unused(rungs, settings)


def merged(*settings: Settings) -> dict[str, dict[str, Any]]:
    """Return settings by slot; later ones stand above earlier ones."""
    found: dict[str, dict[str, Any]] = {}
    for given in settings:
        for slot, asked in given.items():
            found[slot] = {**found.get(slot, {}), **asked}
    return {slot: asked for slot, asked in found.items() if asked}
