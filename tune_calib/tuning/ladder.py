"""A ladder or comparison in a run folder: its trials, its manifest and its execution."""

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from tune_calib.console import echo
from tune_calib.data.shift import find_sets
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.results import digests
from tune_calib.results.folders import find_sweep_manifest, to_record
from tune_calib.results.manifests import SWEEP_MANIFEST, VERSION, PlannedRecord, SweepManifest
from tune_calib.results.plugin_folders import merge_records
from tune_calib.spec import plugins
from tune_calib.spec.ladder import LADDERS, Ladder, PlannedTrial, expand, select_rungs
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.request import AblateRequest, CompareRequest
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.caption import describe_setting, list_left_out, origin_records, titles
from tune_calib.tuning.folder import (
    RunLocation,
    build_foreign_error,
    done,
    explain_other_recipe,
    hash_request,
    refuse_foreign,
)
from tune_calib.tuning.work.execution import execute, resources_of
from tune_calib.tuning.work.executor import Executor
from tune_calib.tuning.work.jobs import ExtraJob, Left, Plan, find_extra_jobs, lacking, make_plan
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.reuse import Copies, copy_rows


@dataclass(frozen=True)
class LadderRun:
    """A ladder or comparison in a run folder, with extra evaluations of its trials."""

    is_search: ClassVar = False

    ladder: Ladder
    resolved: ResolvedRequest
    location: RunLocation
    shift: tuple[str, ...] = ()  # shift sets to evaluate, as in the request
    bootstrap: int = 0  # draws of the samples of test and of shift sets

    @cached_property
    def name(self) -> str:
        """Return the name of the ladder."""
        return self.ladder.name

    @cached_property
    def planned_trials(self) -> list[PlannedTrial]:
        """List all trials."""
        return expand(self.ladder, self.resolved)

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        """List the plug-ins of the ladder, its recipe and its trials."""
        recipe = self.resolved.recipe
        own = [LADDERS.origin(self.name)] if self.name in LADDERS else []
        own += [RECIPES.origin(recipe.name)] if recipe and recipe.name in RECIPES else []
        return plugins.used([*own, *(p for trial in self.planned_trials for p in trial.spec.plugins)])

    @cached_property
    def shift_sets(self) -> list[str]:
        """List the names of the shift sets of the extra evaluations."""
        data = self.planned_trials[0].spec.data
        return find_sets(self.shift, data, self.location.data_root)

    def check(self) -> None:
        """Refuse missing shift sets."""
        _ = self.shift_sets

    def build_manifest(self) -> SweepManifest:
        """Build the manifest; that of its folder may differ only in seeds and controls."""
        out, new = self.location.out, self.new_manifest
        old = find_sweep_manifest(out)
        if old is None:
            refuse_foreign(out, SWEEP_MANIFEST)
            return new
        if old.sweep != new.sweep:
            raise build_foreign_error(out, "run", old.command, explain_other_recipe(old, new))
        cell = attrgetter("rung", "network_seed", "head_seed")
        before = {cell(trial): trial.spec_hash for trial in old.planned}
        for trial in new.planned:
            if before.get(cell(trial), trial.spec_hash) != trial.spec_hash:
                label = next(rung.label for rung in new.rungs if rung.index == trial.rung)
                raise UserError(
                    f"{out} was begun by a version of the program with other defaults ({label!r} "
                    "would now be another trial); report still reads it, but to continue, name "
                    "another `out`",
                    setting="out",
                )
        # Of equal entries one remains; new ones follow the old ones.
        rungs = {rung.index: rung for rung in [*old.rungs, *new.rungs]}
        planned = {trial.spec_hash: trial for trial in [*old.planned, *new.planned]}
        both = {
            "rungs": [rungs[index] for index in sorted(rungs)],
            "planned": list(planned.values()),
            "network_seeds": sorted({*old.network_seeds, *new.network_seeds}),
            "head_seeds": sorted({*old.head_seeds, *new.head_seeds}),
            "titles": {**old.titles, **new.titles},
            **({"plugins": needs} if (needs := merge_records(old.plugins, new.plugins)) else {}),
        }
        return new.model_copy(update=both).over(old)

    @cached_property
    def new_manifest(self) -> SweepManifest:
        """Build the manifest of a new folder."""
        planned, ladder, seeds = self.planned_trials, self.ladder, self.resolved.seeds
        identity = self.resolved.identity()
        request = {"ladder": ladder.name, **identity, "is_paired": seeds.is_paired}
        rungs = select_rungs(ladder, self.resolved)
        # Controls that were not requested are not part of the run.
        used = sorted({trial.rung for trial in planned})
        further = origin_records(self.resolved, self.plugins)
        data, network = planned[0].spec.data, planned[0].spec.network
        # If the plan depends on files, the command and the program do not determine it.
        is_of_files = data.imported is not None or data.found is not None or network.weights
        if not is_of_files and (program := digests.digest_program()):
            further["program"] = program
        return SweepManifest(
            version=VERSION,
            sweep=hash_request(request),
            ladder=ladder.name,
            title=ladder.title,
            command=self.location.command,
            dataset=data.dataset,
            setting=describe_setting(planned, ladder, self.resolved),
            published=ladder.published,
            rungs=[to_record(index, rungs[index]) for index in used],
            network_seeds=sorted(set(seeds.network)),
            head_seeds=sorted(set(seeds.head)),
            paired_seeds=seeds.is_paired,
            planned=[
                PlannedRecord(
                    spec_hash=trial.spec.hash,
                    rung=trial.rung,
                    network_seed=trial.spec.network.seed,
                    head_seed=trial.spec.head.seed if trial.spec.head else None,
                )
                for trial in planned
            ],
            titles=titles(planned, self.location),
            **further,
        )

    def plan(self) -> Left:
        """Compute planned - done, and the missing extra evaluations of finished trials."""
        plan, extra = make_plan(self.planned_trials, done(self.location.out)), self._find_extra()
        gpus, store = self.location.gpus, Store(self.location.store)
        needs = [*resources_of(plan.trials, gpus), *resources_of(extra, gpus)]
        is_over = not plan.networks and not extra
        artifact = next(lacking(plan, store, is_search=False), None)
        return Left(plan, needs, artifact, extra, is_over)

    def _find_extra(self) -> list[ExtraJob]:
        where = self.planned_trials, self.location.out
        return find_extra_jobs(self.shift_sets, self.bootstrap, *where)

    def open(self, left: Left) -> Left:
        """Print which rungs are left out."""
        for text in [] if left.is_over else list_left_out(self.ladder, self.resolved):
            echo(f"{self.location.out}: {text}", err=True)
        return left

    def copy_rows(self, state: Left, copies: Copies) -> Left:
        """Copy rows from other folders; return the remaining work."""
        where = (self.location.out, self.location.among, self.new_manifest.sweep, self.name)
        is_copied = copy_rows(self.planned_trials, *where, self.shift_sets, copies)
        return self.plan() if is_copied else state

    def execute(self, state: Left, executor: Executor) -> None:
        """Execute the plan, and then the extra evaluations."""
        state.crashed.extend(execute("networks and heads", state.plan, executor))
        # With those of the trials that have just finished.
        extra = Plan(tuple(self._find_extra() if state.plan.networks else state.extra))
        state.crashed.extend(execute("extra evaluations", extra, executor))


def build_ladder_run(
    request: AblateRequest | CompareRequest,
    ladder: Ladder,
    resolved: ResolvedRequest,
    command: str,
    is_dry: bool = False,
) -> LadderRun:
    """Build the run of a resolved request, after reading the files that it names."""
    location = RunLocation.of_request(request, command)
    resolved = resolve_files(resolved, location.data_root, location.store, is_dry)
    return LadderRun(ladder, resolved, location, request.shift, request.bootstrap)
