"""A search in a run folder, and how its baseline and its suggestions are executed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from analysis.search.load import load_search as read_results
from tune_calib.console import echo
from tune_calib.engine.head_batch import HEAD_THREADS
from tune_calib.engine.machine import count_cores
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, expand_path, parse_path
from tune_calib.results.folders import describe_unloaded, read_identity, read_search_manifest
from tune_calib.results.manifests import VERSION, CommandRecord, ReplayRecord, SearchManifest
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import IN_PROCESS, JOURNAL, REUSED, SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.request import SearchRequest
from tune_calib.spec.resolved import ResolvedRequest, refuse_large
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.space import Point
from tune_calib.text import format_count, mask_url
from tune_calib.tuning.caption import origin_records, titles
from tune_calib.tuning.folder import (
    Provenance,
    Result,
    RunLocation,
    build_foreign_error,
    done,
    refuse_foreign,
)
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.reuse import Copies, find_reusable, read_earlier, store_rows
from tune_calib.tuning.search.definition import Candidates, Objective, SearchDefinition, list_hashes
from tune_calib.tuning.search.outcome import NO_ROW, describe_rungs, write_outcome
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.storage import find_storage, lost_database
from tune_calib.tuning.search.study import SearchStudy
from tune_calib.tuning.share import resolve_share
from tune_calib.tuning.work.executor import Resources, Source
from tune_calib.tuning.work.jobs import JobSource, RemainingWork, make_plan, resources_of


@dataclass(frozen=True)
class SearchRun:
    is_search: ClassVar = True
    records: ClassVar[tuple[()]] = ()

    definition: SearchDefinition
    length: int  # suggestions in total, without retries
    location: RunLocation
    at_once: int = 1  # jobs in parallel
    retry: str | None = None  # status of the trials to suggest again: crashed
    earlier: tuple[str, ...] = ()  # folders of searches from which a new one takes something

    @property
    def out(self) -> AnyPath:
        return self.location.out

    @property
    def resolved(self) -> ResolvedRequest:
        return self.definition.resolved

    @cached_property
    def name(self) -> str:
        return f"search {self.definition.method}"

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        return plugins.used(self.definition.plugins)

    @cached_property
    def planned_trials(self) -> list[PlannedTrial]:
        defaults = self.definition.candidates.trials({}, 0)
        return [*Stages(self.definition).all_baselines, *defaults]

    def check(self) -> None:
        definition, location = self.definition, self.location
        method, space = definition.method, definition.candidates.space
        if location.replay:
            from tune_calib.tuning.work.replay import load_table  # imports scikit-learn

            table, digest = load_table(location.replay.path), definition.replay["table"]
            table.refuse_other(digest, method, space.settings, definition.objective.metrics)
        is_alone = not (location.uses_ray or location.is_shared)
        if location.gpus and is_alone and self.at_once > 1:
            raise UserError(
                f"{self.at_once} needs Ray: with `address` {IN_PROCESS} one process uses the GPU",
                setting="at_once",
            )
        refuse_large(self.length * len(self.resolved.seeds.pairs()))
        if not space.settings:
            raise UserError(
                f"every setting in the space of {method} is fixed, so nothing is left to search; "
                f"leave one out, or run tune-calib compare {method}"
            )
        if definition.grid:  # values of a user may not fit together
            for point in definition.points:
                definition.candidates.trials(point, 0)

    def build_manifest(self) -> SearchManifest:
        """Build the manifest; that of its folder may differ only in its length and its cluster."""
        out, new = self.out, self.new_manifest
        old = SearchManifest.find(out)
        if old is None:
            identity = read_identity(out)
            if identity is None:
                refuse_foreign(out, SEARCH_MANIFEST, JOURNAL, REUSED)
            elif identity != new.search:
                raise build_foreign_error(out, "search", f"its {SEARCH_MANIFEST} is lost")
            if (out / SEARCH_EVALUATED).exists():
                raise UserError(f"{out} was evaluated on test, and its {SEARCH_MANIFEST} is lost")
            return new
        if old.search != new.search:
            old_fields, new_fields = old.question.plain(), new.question.plain()
            keys = [key for key in new_fields if old_fields.get(key) != new_fields[key]]
            why = f", which differs in {', '.join(keys)}"
            if keys == ["defaults"]:
                why += ": its recipe has changed meanwhile; tune-calib resume keeps the old one"
            raise build_foreign_error(out, "search", old.command, why=why)
        recorded = old.study_storage and mask_url(old.study_storage)
        if recorded != new.study_storage:
            raise UserError(
                f"the study of {out} is stored in {recorded or 'its journal file'}; name the same "
                "`study_storage`"
            )
        if (out / SEARCH_EVALUATED).exists():
            raise UserError(
                f"{out} was evaluated on test, which ends its search; name another `out`"
            )
        commands = old.commands
        if new.trials > old.trials:
            if commands[-1].command == new.command:  # an experiment file or a budget that grew
                commands = commands[:-1]
            commands = [*commands, CommandRecord(command=new.command, trials=new.trials)]
        plugins = {record.name: record for record in [*old.plugins, *new.plugins]}
        further: dict[str, Any] = {
            "command": old.command,  # the first one, which the page shows
            "commands": commands,
            "trials": max(old.trials, new.trials),
            "plugins": list(plugins.values()),
        }
        return new.model_copy(update=further).over(old)

    @cached_property
    def new_manifest(self) -> SearchManifest:
        definition, location = self.definition, self.location
        store = None
        if location.store != location.out / "store":
            store = str(location.store.resolve())
        return SearchManifest(
            version=VERSION,
            search=definition.identity,
            question=definition.record,
            rule=definition.objective.describe_rule(),
            trials=self.length,
            command=location.command,
            commands=[CommandRecord(command=location.command, trials=self.length)],
            specs=list_first_specs(definition.candidates),
            store=store,
            data_root=location.absolute_data_root,
            address=location.address,
            gpus=location.gpus,
            at_once=self.at_once,
            study_storage=location.study_storage and mask_url(location.study_storage),
            replay=location.replay,
            titles=titles(definition.candidates.baseline(), location),
            **origin_records(self.resolved, self.plugins),
        )

    def read_files(self, is_dry: bool) -> "SearchRun":
        """Return the run with the content of the files that its settings name."""
        if self.location.replay:
            return self
        data_root, store = self.location.data_root, self.location.store
        resolved = resolve_files(self.resolved, data_root, store, is_dry=is_dry)
        if resolved.imports:
            raise UserError("names several imports, and a search takes one", "imported")
        record = resolved.overrides.get("data", {}).get("imported")
        if record is not None and not record["select"]:
            raise UserError(
                "has no select, by which a search decides; import it without `select` none",
                "imported",
            )
        definition = replace(self.definition, resolved=resolved)
        records = tuple(read_earlier(path, definition) for path in self.earlier)
        definition = replace(definition, reuse=records)
        length = len(definition.points) if definition.join else self.length
        return replace(self, definition=definition, length=length)

    def choose_gpus(self) -> "SearchRun":
        if not self.location.chooses_gpus:
            return self
        candidates = self.definition.candidates
        specs = [trial.spec for trial in candidates.trials({}, 0)]
        networks = min(self.length, self.at_once) if candidates.kind == "network" else 1
        return replace(self, location=resolve_share(self.location, specs, suggestions=networks))

    def plan(self, reads_shifts: bool = True) -> RemainingWork:
        """Plan the baseline and the defaults that have no row; the study knows the rest."""
        plan, needs = make_plan(self.planned_trials, done(self.out)), self.needs
        if (self.out / SEARCH_MANIFEST).exists():  # it may be over and need nothing
            needs = []
        return replace(plan, needs=needs, is_search=True)

    @property
    def needs(self) -> list[Resources]:
        work = make_plan(self.planned_trials, set())
        return resources_of(work.networks + work.head_batches, self.location.gpus)

    def open(self, work: RemainingWork) -> SearchState:
        for path, record in zip(self.earlier, self.definition.reuse, strict=False):
            store_rows(parse_path(path), record, self.out)
        state = open_state(self)
        state.read_rows()
        if state.is_over:
            state.settle_ended()
        return state

    def sources(
        self, state: SearchState, provenance: Provenance, tracker: Tracker
    ) -> Iterator[Source]:
        """Yield the jobs of the baseline, and then of the suggestions, with those to be retried."""
        if self.retry is not None:
            state.study.retry(self.retry)
        definition = self.definition
        copies = Copies(provenance.digests, self.location.data_root)
        state.reusable = find_reusable(definition, self.out, copies)
        baseline = definition.candidates.baseline()
        if definition.join or definition.candidates.kind == "network":  # heads need the network
            state.take_reusable([t for t in baseline if t.spec.hash not in state.rows])
        work = make_plan(state.stages.all_baselines, set(state.rows))
        deadline = self.location.deadline
        if work.networks:
            yield JobSource("baseline", work.networks, provenance, work.head_batches, deadline.time)
        state.read_rows()
        if deadline.is_over:
            return
        _ = state.baselines  # refuses a failed baseline before any suggestion
        is_ordered = not self.location.uses_ray
        yield StudySource(state, provenance, self.at_once, tracker, is_ordered=is_ordered)

    def finish(self, state: SearchState) -> Result:
        stopped, deadline = "", self.location.deadline
        if deadline.is_over and not state.is_over:
            planned = format_count(state.planned, "suggestion")
            stopped = deadline.describe(f"{state.count_left()} of {planned}")
        if not stopped or state.has_baseline:
            write_outcome(state, self.location, stopped)
            for line in describe_rungs(state):
                echo(line, err=True)
        errors, names = state.errors, state.crashed.values()
        crashed = [errors.get(name, NO_ROW) for name in names]
        return Result(crashed, stopped, state)


def list_first_specs(candidates: Candidates) -> dict[str, list[str]]:
    """List the spec hashes of baseline and defaults, which versions may change."""
    return {
        "baseline": list_hashes(candidates.baseline()),
        "defaults": list_hashes(candidates.trials({}, 0)),
    }


def refuse_other_specs(out: AnyPath, candidates: Candidates) -> None:
    """Refuse to continue a search whose trials have other settings in this version."""
    old = SearchManifest.find(out)
    if old is None:
        return
    new_specs = list_first_specs(candidates)
    for name, text in (("baseline", "the baseline"), ("defaults", f"{candidates.method} itself")):
        if not set(old.specs[name]) <= set(new_specs[name]):
            raise UserError(
                f"{out}: this search began with a version that gave {text} other settings, and "
                "trials of both cannot be mixed; continue with that version, or search in a new "
                "`out`"
            )


def build_search_run(request: SearchRequest, resolved: ResolvedRequest, command: str) -> SearchRun:
    """Build the run of a resolved request; the files that it names are not read yet."""
    location = RunLocation.of_request(request, command)
    center: Point = {}
    if request.around and not (center := read_results(parse_path(request.around)).chosen):
        raise UserError(f"{request.around} has no chosen settings", "around")
    replayed: dict[str, str] = {}
    if request.replay:
        from tune_calib.tuning.work.replay import load_table

        path, answer = str(expand_path(request.replay).resolve()), request.replay_answer
        table = load_table(path)
        replayed = {"table": table.digest, "answer": answer}
        resolved = table.record.resolve(resolved.seeds)
        record = ReplayRecord(path=path, answer=answer, r2=table.record.r2)
        location = replace(location, address=IN_PROCESS, replay=record)
    definition = SearchDefinition(
        method=request.method,
        resolved=resolved,
        objective=Objective(request.metric, request.guard),
        sampler=request.sampler,
        sampler_seed=request.sampler_seed,
        population=request.population,
        grid=request.grid or {},
        around=center,
        replay=replayed,
        join=request.join,
        race=request.race,
        halving=request.halving or 0,
    )
    Stages(definition).check()
    tries_all = request.grid or SAMPLERS[request.sampler].is_local
    return SearchRun(
        definition=definition,
        length=len(definition.points) if tries_all else request.trials,
        location=location,
        at_once=request.at_once or count_at_once(definition, location),
        retry=request.retry,
        earlier=request.reuse,
    )


def count_at_once(definition: SearchDefinition, location: RunLocation) -> int:
    """Count the trials that run in parallel on this machine; one without Ray, as in a replay."""
    if not location.uses_ray:
        return 1
    threads = definition.candidates.trials({}, 0)[0].spec.network.threads
    if definition.candidates.kind == "head":
        threads = HEAD_THREADS
    return max(1, count_cores() // threads)


def load_search(out: AnyPath, study_storage: str | None, address: str | None = None) -> SearchRun:
    """Load the search of a folder, for another cluster than before if an address is given."""
    describe_unloaded(out, is_run=True)
    manifest = read_search_manifest(out)
    definition = SearchDefinition.read(manifest)
    location = RunLocation(
        out=out,
        store=parse_path(manifest.store) if manifest.store else out / "store",
        data_root=Path(manifest.data_root) if manifest.data_root else None,
        address=IN_PROCESS if manifest.replay else address or manifest.address,
        gpus=ceil(manifest.gpus) if address == IN_PROCESS else manifest.gpus,
        command=manifest.command,
        dataset_title=manifest.titles.get(
            definition.resolved.overrides.get("data", {}).get("dataset", "")
        ),
        study_storage=find_storage(out, study_storage, manifest.study_storage),
        replay=manifest.replay,
    )
    at_once = manifest.at_once
    if address is not None and (address == IN_PROCESS) != (manifest.address == IN_PROCESS):
        at_once = count_at_once(definition, location)
    return SearchRun(definition, manifest.trials, location, at_once)


def open_state(run: SearchRun, is_read_only: bool = False) -> SearchState:
    refuse_other_specs(run.out, run.definition.candidates)
    study = SearchStudy(run.definition, run.out, run.location.study_storage, is_read_only)
    return SearchState(
        run.out, run.definition, study, run.length, run.retry, run.needs, run.location.deadline
    )


def count_suggestions(
    out: AnyPath, study_storage: str | None, length: int = 0
) -> tuple[int, int] | None:
    """Count the suggestions that have ended, and those of some length; None without a search."""
    if not (out / SEARCH_MANIFEST).exists():
        return None
    run = load_search(out, study_storage)
    with lost_database(run.location.study_storage):
        study = SearchStudy(run.definition, out, run.location.study_storage, is_read_only=True)
        state = SearchState(out, run.definition, study, length=length)
        state.read_rows()
        return len(state.list_ended()), state.planned


def write_outcome_so_far(out: AnyPath, study_storage: str | None) -> None:
    """Write ``outcome.json`` of an unfinished search; its driver may be running."""
    run = load_search(out, study_storage)
    if not done(out):
        raise UserError(f"{out}: no result yet; see: tune-calib status {out}")
    with lost_database(run.location.study_storage):
        state = open_state(run, is_read_only=True)
        state.settle_ended()
        _ = state.baselines  # refuses a failed baseline
        write_outcome(state, run.location)
