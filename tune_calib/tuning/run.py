"""The driver of ladders, comparisons and searches, which completes a run in its folder."""

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, overload

from tune_calib.console import echo
from tune_calib.engine.code import code_of_trials
from tune_calib.engine.machine import environment_of
from tune_calib.engine.store import Store
from tune_calib.paths import require_writable
from tune_calib.progress import report_progress
from tune_calib.results.manifests import SweepManifest
from tune_calib.results.plugin_folders import require_loaded, store_sources
from tune_calib.spec.datasets import DATASETS
from tune_calib.tuning.folder import only_driver
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.loggers.base import followed
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.work.execution import open_executor
from tune_calib.tuning.work.executor import refuse_here
from tune_calib.tuning.work.provenance import Provenance
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.search.outcome import SearchResult
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.search.storage import lost_database


def check_run(run: LadderRun | SearchRun) -> None:
    """Refuse missing data, wrong settings and the folder of another run, without writing."""
    data = run.planned_trials[0].spec.data
    DATASETS[data.dataset].locate(run.location.data_root)
    run.check()
    run.build_manifest()


@overload
def execute_run(run: LadderRun, begin: Callable[[Any], None] = ...) -> list[str]: ...
@overload
def execute_run(run: SearchRun, begin: Callable[[Any], None] = ...) -> SearchResult: ...
def execute_run(
    run: LadderRun | SearchRun, begin: Callable[[Any], None] = lambda run: None
) -> list[str] | SearchResult:
    """Complete a run; ``begin`` is called first unless nothing is left to do."""
    location, out = run.location, run.location.out
    require_loaded(out)
    report_progress("planning trials")
    # Refuse as much as possible before the folder is created.
    check_run(run)
    everywhere = environment_of(trial.spec for trial in run.planned_trials)
    refuse_here(location.address, run.plan().needs, everywhere)
    study = lost_database(run.study_storage) if isinstance(run, SearchRun) else nullcontext()
    with only_driver(out), show_driver(out), study:
        # Again, since another driver may have extended the run meanwhile.
        manifest, left = run.build_manifest(), run.plan()
        identity = manifest.sweep if isinstance(manifest, SweepManifest) else manifest.search
        used = [] if left.is_over else [trial.spec.data for trial in run.planned_trials]
        copies = Copies.read(used, location.data_root, Store(location.store))
        if not left.is_over:
            copies.refuse_other(out, [t for each in left.plan.networks for t in each.dependents])
            if left.artifact is not None:
                require_writable(location.store, left.artifact)
        state: Any = run.open(left)
        # Before the first trial, so that a killed run knows its plan; and after all checks, so that
        # a refused run leaves the manifest unchanged.
        manifest.write(out)
        store_sources(out, run.plugins)
        with followed(out, identity):
            if state.is_over:
                echo(f"nothing is left to do in {out}", err=True)
            else:
                refuse_here(location.address, state.needs, everywhere)
                begin(run)
                if isinstance(run, LadderRun):  # rows of a search were not evaluated on test
                    state = run.copy_rows(state, copies)
            if not state.is_over:
                # The paths are absolute, since workers have other working directories.
                provenance = Provenance(
                    out=str(out.resolve()),
                    store=str(location.store.resolve()),
                    data_root=str(location.data_root.resolve()) if location.data_root else None,
                    sweep=identity,
                    ladder=run.name,
                    device="cuda" if location.gpus else "cpu",
                    is_search=run.is_search,
                    profile=location.profile,
                    recipe=manifest.recipe.told if manifest.recipe else None,
                    channel=uuid.uuid4().hex,
                    plugins=[plugin.plain() for plugin in run.plugins],
                    digests={key: copy.digest for key, copy in copies.known.items()},
                    code=code_of_trials(trial.spec for trial in run.planned_trials),
                )
                with open_executor(location, state.needs, everywhere, provenance) as executor:
                    run.execute(state, executor)
        return state.crashed if isinstance(run, LadderRun) else run.finish(state)
