"""The driver of ladders, comparisons and searches, which completes a run in its folder."""

from typing import Any

from tune_calib.console import echo
from tune_calib.engine.execution import refuse_captured
from tune_calib.engine.machine import environment_of
from tune_calib.errors import DamagedFileError
from tune_calib.files.store import Store
from tune_calib.progress import report_progress
from tune_calib.results.folders import describe_unloaded
from tune_calib.results.manifests import RunManifest, SearchManifest
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.context import Context
from tune_calib.tuning.describe import describe_run
from tune_calib.tuning.folder import Result, only_driver
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.search.storage import lost_database
from tune_calib.tuning.work.execution import open_executor
from tune_calib.tuning.work.executor import refuse_here
from tune_calib.tuning.work.jobs import RemainingWork

AnyRun = LadderRun | SearchRun


def check_run(run: AnyRun) -> None:
    """Refuse missing data, wrong settings and the folder of another run."""
    describe_unloaded(run.location.out, is_run=True)
    data = run.planned_trials[0].spec.data
    DATASETS[data.dataset].locate(run.location.data_root)
    for trial in run.planned_trials:
        refuse_captured(trial.spec.network.execution, has_gpu=run.location.gpus > 0)
    run.check()
    run.build_manifest()


def execute_run(run: AnyRun, context: Context, label: str = "") -> Result:
    """Complete a run, skipping finished trials; ``label`` is for the live view."""
    location, out = run.location, run.location.out
    report_progress("planning trials")
    # Refuse as much as possible before the folder is created.
    check_run(run)
    work = run.plan()
    everywhere = environment_of(trial.spec for trial in run.planned_trials)
    refuse_here(location.address, work.needs, everywhere)
    with (
        only_driver(out),
        show_driver(out, context.view.tracker),
        lost_database(location.study_storage),
    ):
        if label:
            context.view.tracker.set(entry=label)
        # Again, since another driver may have extended the run meanwhile.
        manifest, work = run.build_manifest(), run.plan()
        copies = read_copies(run, work)
        state: Any = run.open(work)

        try:
            type(manifest).read(out)
        except (FileNotFoundError, DamagedFileError):
            manifest.write(out)  # there is no plan that could be kept
        with context.following(out, manifest.identity) as of_run:
            if not state.is_over:
                refuse_here(location.address, state.needs, everywhere)
                echo(describe_run(run, work), err=True)
                if isinstance(run, LadderRun):
                    state = run.reuse(state, copies)
            else:
                echo(f"nothing is left to do in {out}", err=True)
            if state.is_over:
                _write_plan(run, manifest)
                return run.finish(state)
            provenance = location.build_provenance(
                sweep=manifest.identity,
                ladder=run.name,
                is_search=run.is_search,
                recipe=manifest.recipe.told if manifest.recipe else None,
                plugins=list(map(Plugin.plain, run.plugins)),
                digests=copies.digests,
            )
            with open_executor(location, state.needs, everywhere, provenance, of_run) as executor:
                _write_plan(run, manifest)
                view = of_run.view
                for source in run.sources(state, provenance, view.tracker):
                    with view.phase(source.title, source.units, source.unit, source.kinds):
                        state.errors.update(executor.run(source))
        return run.finish(state)


def _write_plan(run: AnyRun, manifest: RunManifest | SearchManifest) -> None:
    """Write what is planned: before the first row, and after all that may fail."""
    for record, folder in run.records:
        record.write(folder)
    manifest.write(run.location.out)


def read_copies(run: AnyRun, work: RemainingWork) -> Copies:
    """Read the data of a run; refuse another copy than before."""
    location, store = run.location, Store(run.location.store)
    if work.is_over:
        return Copies.read([], location.data_root, store)
    specs = [trial.spec for trial in run.planned_trials]
    copies = Copies.read(specs, location.data_root, store)
    dependents: list[PlannedTrial] = []
    for job in work.networks:
        dependents.extend(job.dependents)
    copies.refuse_other(location.out, dependents)
    return copies
