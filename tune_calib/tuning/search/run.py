"""A search in a run folder: its baseline, its suggestions on ``select``, the choice, the counts."""

import contextlib
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path

from tune_calib.engine.population import HEAD_THREADS
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, parse_path
from tune_calib.results.folders import foreign_search, read_identity, read_search_manifest
from tune_calib.results.manifests import VERSION, CommandRecord, SearchManifest, SearchOutcome
from tune_calib.results.plugin_folders import require_loaded
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import IN_PROCESS, SEARCH_MANIFEST, WATCHED
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.request import SearchRequest
from tune_calib.spec.resolved import ResolvedRequest, refuse_large
from tune_calib.text import mask_url
from tune_calib.tuning.caption import origin_records, titles
from tune_calib.tuning.folder import RunLocation, done, refuse_mended
from tune_calib.tuning.ray.execution import execute, resources_of
from tune_calib.tuning.ray.executor import Executor, Resources, show_phase
from tune_calib.tuning.ray.plan import MAX_POPULATION, lacking, make_plan
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.run import Left, Run
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.execute import execute_heads, execute_networks
from tune_calib.tuning.search.manifest import (
    extend_manifest,
    find_manifest,
    list_first_specs,
    refuse_other_specs,
)
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.storage import find_storage, lost_database, open_storage
from tune_calib.tuning.search.study import SearchStudy, list_points

MIN_SHARE = 8


@dataclass(frozen=True)
class SearchResult:
    """The state of a search at its end, its outcome, and its counts in one line."""

    state: SearchState
    outcome: SearchOutcome
    counts: str

    @property
    def crashed(self) -> list[str]:
        """List what trials of this session died of."""
        return list(self.state.crashed.values())


@dataclass(frozen=True)
class SearchRun(Run[SearchState, SearchResult]):
    """A search in a run folder.

    Attributes:
        length: suggestions in total, without retries.
        at_once: Ray trials side by side.
        study_storage: URL of the study's database; None for a journal file in its folder.
        retry: status of trials that are tried once more, e.g. ``crashed``.
    """

    is_search = True

    definition: SearchDefinition
    length: int
    location: RunLocation
    at_once: int = 1
    study_storage: str | None = None
    retry: str | None = None

    @property
    def out(self) -> AnyPath:
        """Return its folder."""
        return self.location.out

    @property
    def resolved(self) -> ResolvedRequest:
        """Return the settings that are not searched, and the seeds of every suggestion."""
        return self.definition.resolved

    @property
    def name(self) -> str:
        """Return what the column ``ladder`` of its rows says."""
        return f"search {self.definition.method}"

    @property
    def identity(self) -> str:
        """Return the hash of the definition."""
        return self.definition.identity

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """List the plug-ins that its trials need."""
        return plugins.used(self.definition.plugins)

    @cached_property
    def known_trials(self) -> list[PlannedTrial]:
        """List the trials of the baseline and of the method's defaults."""
        candidates = self.definition.candidates
        return [*candidates.baseline(), *candidates.trials({}, 0)]

    def as_begun(self) -> "SearchRun":
        """Return it with the lag of its folder, which earlier versions took from the machine."""
        old = find_manifest(self.out)
        if old is not None:
            return replace(self, definition=replace(self.definition, lag=old.question.lag))
        # The manifest may be lost; the rows keep the identity of the whole definition.
        slow = replace(self, definition=replace(self.definition, lag=1))
        before = read_identity(self.out)
        return slow if before is not None and slow.identity == before else self

    def check(self) -> None:
        """Refuse numbers that make no search, and a space with nothing to search."""
        definition = self.definition
        Resources(1, self.location.gpus)
        for name, count in (
            ("trials", self.length),
            ("population", definition.population),
            ("at_once", self.at_once),
        ):
            if count < 1:
                raise UserError(f"`{name}` must be at least 1, got {count}")
        is_asha = definition.scheduler == "asha"
        if not self.location.uses_ray:
            where = f"`address` {IN_PROCESS}"
            if self.at_once > 1:
                raise UserError(
                    f"{self.at_once} needs Ray: with {where} one trial runs after the other",
                    setting="at_once",
                )
            if is_asha:
                raise UserError(
                    f"asha needs Ray, which stops the networks: leave {where} out",
                    setting="scheduler",
                )
        refuse_large(self.length * len(self.resolved.seeds.pairs()))
        if is_asha:
            if definition.candidates.kind != "network":
                raise UserError(
                    f"asha stops networks; {definition.method} trains none", setting="scheduler"
                )
            metrics = definition.objective.metrics
            if len(metrics) > 1 or metrics[0] not in WATCHED:
                raise UserError(f"`scheduler` asha needs one `metric` of {', '.join(WATCHED)}")
        definition.candidates.refuse_empty()

    def build_manifest(self) -> SearchManifest:
        """Build the manifest of its folder, with what the folder holds already."""
        return extend_manifest(self.new_manifest, self.out)

    @cached_property
    def new_manifest(self) -> SearchManifest:
        """Build the manifest of a new folder."""
        definition, location = self.definition, self.location
        is_default = location.store == location.out / "store"
        return SearchManifest(
            version=VERSION,
            search=definition.identity,
            question=definition.record,
            rule=definition.objective.describe_rule(),
            trials=self.length,
            command=location.command,
            commands=[CommandRecord(command=location.command, trials=self.length)],
            specs=list_first_specs(definition.candidates),
            store=None if is_default else str(location.store.resolve()),
            data_root=str(location.data_root.resolve()) if location.data_root else None,
            address=location.address,
            gpus=location.gpus,
            at_once=self.at_once,
            study_storage=self.study_storage and mask_url(self.study_storage),
            titles=titles(definition.candidates.baseline()),
            **origin_records(self.resolved, self.plugins),
        )

    def find_left(self) -> Left:
        """Compute what its study need not tell: the baseline and the defaults without a row."""
        is_begun = (self.out / SEARCH_MANIFEST).exists()  # it may be over, and need nothing
        whole = make_plan(self.known_trials, set())
        artifacts = lacking(whole, Store(self.location.store), is_search=True)
        if self.definition.candidates.kind == "network":
            artifacts.append("the networks of the search")
        plan = make_plan(self.known_trials, done(self.out))
        return Left(plan, [] if is_begun else self.list_needs(), artifacts)

    def list_needs(self) -> list[Resources]:
        """List the resources of the kinds of Ray trials."""
        return resources_of(make_plan(self.known_trials, set()).trials, self.location.gpus)

    def catch_storage_errors(self) -> contextlib.AbstractContextManager[None]:
        """Report a database that does not answer any more in one line while the block runs."""
        return lost_database(self.study_storage)

    def open(self, left: Left) -> SearchState:
        """Open the study, and suggest again what is to be retried."""
        state = open_state(self)
        if self.retry is not None:
            state.study.retry(self.retry)
        state.read_rows()
        if state.is_over:
            state.settle_all()
        return state

    def execute(self, state: SearchState, executor: Executor, provenance: Provenance) -> None:
        """Execute the baseline, and then the suggestions."""
        definition, gpus = self.definition, self.location.gpus
        plan = make_plan(definition.candidates.baseline(), set(state.rows))
        execute("baseline", plan, executor, provenance, gpus)
        state.read_rows()
        _ = state.baseline  # refused here, before anything is suggested
        planned, pairs = state.planned, len(self.resolved.seeds.pairs())
        is_head = definition.candidates.kind == "head"
        kinds = {"heads" if is_head else "networks": (planned - state.study.finished()) * pairs}
        channel = provenance.channel
        with show_phase(self.name, planned, "suggestions", kinds, executor, channel):
            if is_head:
                pool = executor.pool(self.at_once, Resources(HEAD_THREADS, gpus), provenance)
                # Few enough for every actor to get a share of a batch, where that leaves
                # populations that are worth it; the numbers of a head do not depend on its
                # population.
                share = ceil(definition.population * pairs / self.at_once)
                execute_heads(state, pool, min(MAX_POPULATION, max(MIN_SHARE, share)))
            else:
                execute_networks(state, executor, provenance, gpus, self.at_once)

    def finish(self, state: SearchState) -> SearchResult:
        """Check the counts, and write the outcome."""
        counts = state.reconcile()
        return SearchResult(state, write_outcome(state, self.location), counts)


def build_search_run(
    request: SearchRequest, resolved: ResolvedRequest, command: str, is_dry: bool = False
) -> SearchRun:
    """Build the run of a resolved request, after reading the files that it names."""
    location = RunLocation.of_request(request, command)
    definition = SearchDefinition(
        method=request.method,
        resolved=resolve_files(resolved, location.data_root, location.store, is_dry),
        objective=Objective(request.metric, request.guard),
        sampler=request.sampler,
        sampler_seed=request.sampler_seed,
        scheduler=request.scheduler,
        population=request.population,
    )
    return SearchRun(
        definition=definition,
        length=request.trials,
        location=location,
        at_once=request.at_once or location.at_once(),
        study_storage=request.study_storage,
        retry=request.retry,
    )


def load_search(out: AnyPath, study_storage: str | None) -> SearchRun:
    """Load the search of a folder."""
    require_loaded(out)
    manifest = read_search_manifest(out)
    if not manifest.can_go_on:
        raise foreign_search(out, manifest)
    try:
        definition = SearchDefinition.from_record(manifest.question)
    except (KeyError, TypeError):
        raise foreign_search(out, manifest) from None
    location = RunLocation(
        out=out,
        store=parse_path(manifest.store) if manifest.store else out / "store",
        data_root=Path(manifest.data_root) if manifest.data_root else None,
        address=manifest.address,
        gpus=manifest.gpus,
        command=manifest.command,
    )
    return SearchRun(
        definition=definition,
        length=manifest.trials,
        location=location,
        at_once=manifest.at_once,
        study_storage=find_storage(out, study_storage, manifest.study_storage),
    )


def open_state(run: SearchRun, is_read_only: bool = False) -> SearchState:
    """Open the state of a search: its folder and its study."""
    refuse_other_specs(run.out, run.definition.candidates)
    if not is_read_only:
        refuse_mended(run.out)
    study = open_study(run, is_read_only)
    return SearchState(run.out, run.definition, study, run.length, run.list_needs())


def open_study(run: SearchRun, is_read_only: bool = False) -> SearchStudy:
    """Open the study of a search."""
    definition, candidates = run.definition, run.definition.candidates
    return SearchStudy(
        open_storage(run.study_storage, run.out, is_read_only),
        f"tune-calib {definition.identity}",
        candidates.space,
        definition.objective,
        definition.sampler,
        definition.sampler_seed,
        list_points(candidates.space, definition.sampler, candidates.first()),
        is_read_only,
    )


def find_study(out: AnyPath, study_storage: str | None) -> SearchStudy | None:
    """Open the study of the search in a folder for reading; None if it holds no search."""
    if not (out / SEARCH_MANIFEST).exists():
        return None
    return open_study(load_search(out, study_storage), is_read_only=True)


def write_outcome_so_far(out: AnyPath, study_storage: str | None) -> None:
    """Write ``outcome.json`` of a search that was interrupted, runs, or is of an older version.

    Its driver may be at work: nothing else of the folder is touched, the study least of all.
    """
    run = load_search(out, study_storage)
    if not done(out):
        raise UserError(f"{out}: no result yet; go on: tune-calib resume {out}")
    with lost_database(run.study_storage):
        state = open_state(run, is_read_only=True)
        state.read_rows()
        _ = state.baseline  # one that failed is refused here
        state.settle_ended()
        write_outcome(state, run.location)
