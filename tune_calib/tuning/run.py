"""The driver of ladders, comparisons and searches, which completes a run in its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tune_calib.console import Text, echo
from tune_calib.engine.execution import refuse_captured
from tune_calib.engine.machine import environment_of
from tune_calib.engine.store import Store
from tune_calib.errors import DamagedFileError
from tune_calib.paths import require_writable
from tune_calib.progress import report_progress
from tune_calib.results.manifests import RunManifest, SearchManifest
from tune_calib.results.plugin_folders import require_loaded, store_sources
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.folder import RunLocation, only_driver
from tune_calib.tuning.loggers.base import followed
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.search.storage import lost_database
from tune_calib.tuning.work.execution import open_executor
from tune_calib.tuning.work.executor import Executor, Resources, refuse_here
from tune_calib.tuning.work.jobs import RemainingWork


class State(Protocol):
    """What a run still has to do, once its folder is open."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do."""

    @property
    def needs(self) -> Sequence[Resources]:
        """List the resources of each kind of job."""


@dataclass(frozen=True)
class Result:
    """The end of a run, whose rows are in its folder."""

    crashed: list[str]  # a line for each job that crashed
    stopped: str = ""  # what a limit of time left undone, in words; "" if nothing
    summary: Text | None = None  # to be printed; ladders and comparisons have a report instead


S = TypeVar("S", bound=State)
R = TypeVar("R", bound=Result, covariant=True)


class Run(Protocol[S, R]):
    """A ladder, comparison or search in its folder, which ``execute_run`` completes."""

    @property
    def is_search(self) -> bool:
        """Return whether its trials do not read the test split."""

    @property
    def name(self) -> str:
        """Return the value of the column ``ladder`` of its rows."""

    @property
    def location(self) -> RunLocation:
        """Return its folders and cluster."""

    @property
    def resolved(self) -> ResolvedRequest:
        """Return its settings, seeds and recipe."""

    @property
    def planned_trials(self) -> list[PlannedTrial]:
        """List its trials; of a search, those of the baseline and of the method's defaults."""

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """List the plug-ins that it needs."""

    def read_files(self, is_dry: bool) -> "Run[S, R]":
        """Return the run with the content of the files that its settings name."""

    def check(self) -> None:
        """Refuse wrong settings, without writing."""

    def build_manifest(self) -> RunManifest | SearchManifest:
        """Build the manifest of its folder; refuse the folder of another run."""

    def plan(self) -> RemainingWork:
        """Plan the work that its folder does not cover yet."""

    def open(self, work: RemainingWork) -> S:
        """Open the folder, before anything is written to it."""

    def reuse(self, state: S, copies: Copies) -> S:
        """Copy rows of equal trials from other folders; return what remains."""

    def execute(self, state: S, executor: Executor) -> None:
        """Execute what remains."""

    def finish(self, state: S) -> R:
        """Return the result."""


AnyRun = Run[Any, Result]
Begin = Callable[[AnyRun], None]


def check_run(run: AnyRun) -> RemainingWork:
    """Refuse missing data, wrong settings and the folder of another run; plan it."""
    data = run.planned_trials[0].spec.data
    DATASETS[data.dataset].locate(run.location.data_root)
    for trial in run.planned_trials:
        refuse_captured(trial.spec.network.execution, has_gpu=run.location.gpus > 0)
    run.check()
    run.build_manifest()
    return run.plan()


def execute_run(
    run: Run[S, R], begin: Begin = lambda run: None, record: Callable[[], None] = lambda: None
) -> R:
    """Complete a run; ``begin`` precedes its work, and ``record`` its manifest."""
    location, out = run.location, run.location.out
    require_loaded(out)
    report_progress("planning trials")
    # Refuse as much as possible before the folder is created.
    work = check_run(run)
    everywhere = environment_of(trial.spec for trial in run.planned_trials)
    refuse_here(location.address, work.needs, everywhere)
    with only_driver(out), show_driver(out), lost_database(location.study_storage):
        # Again, since another driver may have extended the run meanwhile.
        manifest, work = run.build_manifest(), run.plan()
        copies = read_copies(run, work)
        state = run.open(work)

        def write_plan() -> None:
            """Write what is planned: before the first row, and after all that may fail."""
            record()
            manifest.write(out)
            store_sources(out, run.plugins)

        try:
            type(manifest).read(out)
        except (FileNotFoundError, DamagedFileError):
            manifest.write(out)  # there is no plan that could be kept
        with followed(out, manifest.identity):
            if state.is_over:
                write_plan()
                echo(f"nothing is left to do in {out}", err=True)
                return run.finish(state)
            refuse_here(location.address, state.needs, everywhere)
            begin(run)
            state = run.reuse(state, copies)
            if state.is_over:
                write_plan()
            else:
                recipe = manifest.recipe.told if manifest.recipe else None
                provenance = location.build_provenance(
                    sweep=manifest.identity,
                    ladder=run.name,
                    is_search=run.is_search,
                    recipe=recipe,
                    plugins=list(map(Plugin.plain, run.plugins)),
                    digests=copies.digests,
                )
                with open_executor(location, state.needs, everywhere, provenance) as executor:
                    write_plan()
                    run.execute(state, executor)
        return run.finish(state)


def read_copies(run: AnyRun, work: RemainingWork) -> Copies:
    """Read the data of a run; refuse another copy than before, and a store that lacks artifacts."""
    location, store = run.location, Store(run.location.store)
    if work.is_over:
        return Copies.read([], location.data_root, store)
    specs = [trial.spec for trial in run.planned_trials]
    copies = Copies.read(specs, location.data_root, store)
    dependents: list[PlannedTrial] = []
    for job in work.networks:
        dependents.extend(job.dependents)
    copies.refuse_other(location.out, dependents)
    if work.artifact is not None:
        require_writable(location.store, work.artifact)
    return copies
