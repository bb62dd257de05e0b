"""Resolve the entries of an experiment file to jobs, all of them before any starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_calib.errors import UserError
from tune_calib.experiments.file import ReadFile, merge_settings, name_settings
from tune_calib.results.selection import BASELINE
from tune_calib.spec.datasets import DATASETS, Settings
from tune_calib.spec.experiment import Entry, SearchOptions, SeedCounts, TrialResources
from tune_calib.spec.ladder import Ladder, Rung, build_rung, find_keys, refuse_unused
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest, Seeds, refuse_large
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.extra import ExtraEvaluations
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.ray.executor import Resources
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.search.storage import journal_file

Job = LadderRun | SearchRun


@dataclass(frozen=True)
class EntryJob:
    """A ladder or search of an entry, on one data set and backbone.

    Attributes:
        position: of its entry, or of its method in the entry of a search.
        job: what runs, in a folder of its own.
        hours: the budget of a search that has one in hours; its job is then the first batch.
    """

    position: Position
    job: Job
    hours: float | None = None

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.job.location.out.name

    @property
    def entry(self) -> str:
        """Return the name of its entry."""
        return str(self.position[1])

    @property
    def request(self) -> ResolvedRequest:
        """Return its settings, seeds and recipe."""
        return self.job.resolved

    def with_request(self, request: ResolvedRequest) -> "EntryJob":
        """Return the same with another request."""
        if isinstance(self.job, LadderRun):
            return replace(self, job=replace(self.job, resolved=request))
        definition = replace(self.job.definition, resolved=request)
        return replace(self, job=replace(self.job, definition=definition))


def plan_jobs(
    file: ReadFile, command: str = "", needs_data: bool = True, is_dry: bool = False
) -> list[EntryJob]:
    """Build everything that an experiment file requests; refuse what lacks data or resources.

    Args:
        file: the experiment file.
        command: to run the same again.
        needs_data: whether the files of the data sets must be there.
        is_dry: write nothing.
    """
    jobs, at, data_root = build_jobs(file, command), file.source.at, file.content.data_root
    for index, each in enumerate(jobs):
        job = each.job
        with at(file.position_of(each.entry, "resources")):
            Resources(1, job.location.gpus)
        with at(("data_root",)):
            if needs_data:
                DATASETS[each.request.overrides["data"]["dataset"]].locate(data_root)
        with at(each.position):
            request = resolve_files(each.request, data_root, file.store, is_dry)
        jobs[index] = each.with_request(request)
        if isinstance(job, LadderRun) and needs_data:
            with at(file.position_of(each.entry, "shift")):
                job.extra.list_sets(request.spec().data, data_root)
        if isinstance(job, SearchRun) and job.study_storage is None:
            with at(("out",)):
                journal_file(file.out)
    return jobs


def build_jobs(file: ReadFile, command: str = "") -> list[EntryJob]:
    """Build everything that an experiment file requests, in its order, and check its settings."""
    _refuse_unread(file)
    jobs = [job for name in file.content.entries for job in _build_entry(file, name, command)]
    names = [job.name for job in jobs]
    for job in jobs:
        if names.count(job.name) > 1:
            raise file.source.error(job.position, f"two folders would be named {job.name!r}")
    return jobs


def _build_entry(file: ReadFile, name: str, command: str) -> Iterator[EntryJob]:
    entry, whole = file.content.entries[name], file.content
    position: Position = ("entries", name)
    ladder = None if entry.search else _build_ladder(file, position, entry)
    counts = (entry.search and entry.search.seeds) or entry.seeds or whole.seeds or SeedCounts()
    with file.source.at((*position, "seeds")):
        seeds = Seeds.count(counts.both, counts.networks, counts.heads)
    extra = ExtraEvaluations(
        entry.shift if entry.shift is not None else whole.shift or (),
        entry.bootstrap if entry.bootstrap is not None else whole.bootstrap or 0,
    )
    location = RunLocation(
        file.out,
        file.store,
        whole.data_root,
        whole.address,
        (entry.resources or whole.resources or TrialResources()).gpus,
        command,
        among=file.among,
    )
    wants_own = whole.own_recipes if entry.own_recipes is None else entry.own_recipes
    # The rungs of a ladder share one recipe.
    own_recipes = bool(wants_own and entry.ladder is None)

    def resolve(rungs: Sequence[Rung], *settings: Settings) -> ResolvedRequest:
        # Settings of the file, then of the entry, as far as some rung knows them.
        known = {
            slot: {key: value for key, value in own.items() if key in find_keys(rungs, slot)}
            for slot, own in merge_settings(whole.set.by_slot(), entry.set.by_slot()).items()
        }
        overrides = merge_settings(known, *settings)
        with file.source.at(position):
            request = ResolvedRequest(
                overrides, seeds, controls=entry.controls, own_recipes=own_recipes
            )
        with file.source.at(file.position_of_recipe(name)):
            return request.with_recipe(entry.recipe or whole.recipe)

    for dataset, backbone in file.combinations(entry):
        named = name_settings(dataset, backbone)
        tail = "-".join([dataset, *([backbone] if backbone else [])])
        if ladder is not None:
            here = replace(location, out=file.out / f"{name}-{tail}")
            ladder_job = LadderRun(ladder, resolve(_list_rungs(entry), named), here, extra)
            with file.source.at(position):
                _ = ladder_job.known_trials
            yield EntryJob(position, ladder_job)
            continue
        assert entry.search is not None
        for index, method in enumerate(entry.methods or ()):
            at, own = (*position, "methods", index), method.set.by_slot()
            here = replace(location, out=file.out / f"{name}-{method.method}-{tail}")
            request = resolve(_list_rungs_of([method.method]), named, own)
            with file.source.at(at):
                search_job = _build_search(method.method, request, entry.search, here)
            search_job = replace(search_job, study_storage=whole.study_storage)
            yield EntryJob(at, search_job, entry.search.hours)


def _build_search(
    method: str, request: ResolvedRequest, search: SearchOptions, location: RunLocation
) -> SearchRun:
    """Build a search; of a budget in hours its first batch."""
    definition = SearchDefinition(
        method=method,
        resolved=request,
        objective=Objective(search.metric, search.guard),
        **search.model_dump(include={"sampler", "sampler_seed", "scheduler", "population"}),
    )
    pairs = len(request.seeds.pairs())
    refuse_large((search.trials or 0) * pairs)
    refuse_large(search.heads or 0)
    candidates = definition.candidates
    candidates.refuse_empty()
    if search.heads is not None and candidates.kind != "head":
        raise UserError(f"{method} trains no heads; give the budget in trials or hours")
    threads = candidates.trials({}, 0)[0].spec.network.threads
    at_once = search.at_once or location.at_once(threads)
    length = search.trials
    if search.heads is not None:
        length = max(1, search.heads // pairs)
    return SearchRun(definition, length or count_batch(definition, at_once), location, at_once)


def count_batch(definition: SearchDefinition, at_once: int) -> int:
    """Return the number of suggestions that keep the machine busy once."""
    is_head = definition.candidates.kind == "head"
    return definition.population * at_once if is_head else at_once


def _build_ladder(file: ReadFile, position: Position, entry: Entry) -> Ladder:
    for index, method in enumerate(entry.methods or ()):
        at, settings = (*position, "methods", index), method.set.by_slot()
        with file.source.at(at):
            build_rung(method.method, settings, "variant")
    with file.source.at((*position, "methods")):
        return entry.build_ladder()


def _list_rungs(entry: Entry) -> Sequence[Rung]:
    """Return rungs that know the settings of an entry."""
    if entry.methods is None:
        return entry.build_ladder().rungs
    return _list_rungs_of([method.method for method in entry.methods])


def _list_rungs_of(pipelines: Sequence[str]) -> list[Rung]:
    """Return a rung a method, and the network under those that train none."""
    parts = sorted({part for name in pipelines for part in name.split("+")})
    return [
        Rung(BASELINE, ""),
        *(Rung(part, "", {METHODS[part].kind: {"method": part}}) for part in parts),
    ]


def _refuse_unread(file: ReadFile) -> None:
    """Refuse a setting of the file that no entry knows, or of an entry that no method knows."""
    rungs = {name: _list_rungs(entry) for name, entry in file.content.entries.items()}
    every = [rung for own in rungs.values() for rung in own]
    parts: list[tuple[Position, dict[str, Any], Sequence[Rung]]] = [
        ((), file.content.set.by_slot(), every),
        *(
            (("entries", name), entry.set.by_slot(), rungs[name])
            for name, entry in file.content.entries.items()
        ),
    ]
    for position, settings, own in parts:
        with file.source.at(position):
            refuse_unused(own, settings)
