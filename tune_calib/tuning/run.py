"""The driver of ladders, comparisons and searches, which completes a run in its folder."""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from tune_calib.console import echo
from tune_calib.engine.machine import environment_of
from tune_calib.engine.store import Store
from tune_calib.paths import require_writable
from tune_calib.progress import report_progress
from tune_calib.results.manifests import SearchManifest, SweepManifest
from tune_calib.results.plugin_folders import require_loaded, store_sources
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.extra import ExtraTrial
from tune_calib.tuning.folder import RunLocation, only_driver
from tune_calib.tuning.loggers.base import followed
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.ray.execution import open_executor
from tune_calib.tuning.ray.executor import Executor, Resources, refuse_here
from tune_calib.tuning.ray.plan import Plan
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.reuse import Copies


@dataclass(frozen=True)
class Left:
    """The remaining work of a run, as far as its folder shows before it is opened."""

    plan: Plan  # planned - done; for a search, only of its baseline and its defaults
    needs: Sequence[Resources]  # of each kind of Ray trials
    artifact: str | None  # the first one that Ray trials will write to the store
    extra: Sequence[ExtraTrial] = ()  # extra evaluations that finished trials lack
    is_over: bool = False  # all is done; always false for a search, which asks its study
    crashed: list[str] = field(default_factory=list)  # a line for each Ray trial that crashed


class _State(Protocol):
    """The remaining work of a run whose folder is open."""

    @property
    def is_over(self) -> bool: ...
    @property
    def needs(self) -> Sequence[Resources]: ...


State = TypeVar("State", bound=_State)
Result = TypeVar("Result", covariant=True)


class _Run(Protocol[State, Result]):
    """A ladder, comparison or search in a run folder, without its changing state."""

    is_search: ClassVar[bool]

    @property
    def location(self) -> RunLocation: ...
    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def plugins(self) -> tuple[Plugin, ...]: ...
    @property
    def known_trials(self) -> Sequence[PlannedTrial]: ...
    def check(self) -> None: ...
    def build_manifest(self) -> SweepManifest | SearchManifest: ...
    def find_left(self) -> Left: ...
    def open(self, left: Left) -> State: ...
    def catch_storage_errors(self) -> contextlib.AbstractContextManager[None]: ...
    def copy_rows(self, state: State, copies: Copies) -> State: ...
    def execute(self, state: State, executor: Executor) -> None: ...
    def finish(self, state: State) -> Result: ...


def check_run(run: _Run[Any, Any]) -> None:
    """Refuse missing data, wrong settings and the folder of another run, without writing."""
    data = run.known_trials[0].spec.data
    DATASETS[data.dataset].locate(run.location.data_root)
    run.check()
    run.build_manifest()


def execute_run(
    run: _Run[State, Result], begin: Callable[[Any], None] = lambda run: None
) -> Result:
    """Complete a run; ``begin`` is called first unless nothing is left to do."""
    location = run.location
    out = location.out
    require_loaded(out)
    report_progress("planning trials")
    # Refuse as much as possible before the folder is created.
    check_run(run)
    everywhere = environment_of(trial.spec for trial in run.known_trials)
    refuse_here(location.address, run.find_left().needs, everywhere)
    with only_driver(out), show_driver(out), run.catch_storage_errors():
        # Again, since another driver may have extended the run meanwhile.
        manifest, left = run.build_manifest(), run.find_left()
        used = [] if left.is_over else [trial.spec.data for trial in run.known_trials]
        copies = Copies.read(used, location.data_root, Store(location.store))
        if not left.is_over:
            copies.refuse_other(out, [t for each in left.plan.networks for t in each.dependents])
            if left.artifact is not None:
                require_writable(location.store, left.artifact)
        state = run.open(left)
        # Before the first trial, so that a killed run knows its plan; and after all checks, so that
        # a refused run leaves the manifest unchanged.
        manifest.write(out)
        store_sources(out, run.plugins)
        with followed(out, run.identity):
            if state.is_over:
                echo(f"nothing is left to do in {out}", err=True)
            else:
                refuse_here(location.address, state.needs, everywhere)
                begin(run)
                state = run.copy_rows(state, copies)
            if not state.is_over:
                # The paths are absolute, since workers have other working directories.
                provenance = Provenance(
                    out=str(out.resolve()),
                    store=str(location.store.resolve()),
                    data_root=str(location.data_root.resolve()) if location.data_root else None,
                    sweep=run.identity,
                    ladder=run.name,
                    device="cuda" if location.gpus else "cpu",
                    is_search=run.is_search,
                    profile=location.profile,
                    recipe=manifest.recipe.told if manifest.recipe else None,
                    channel=uuid.uuid4().hex,
                    plugins=[plugin.plain() for plugin in run.plugins],
                    digests=copies.digests,
                )
                with open_executor(location, state.needs, everywhere, provenance) as executor:
                    run.execute(state, executor)
        return run.finish(state)
