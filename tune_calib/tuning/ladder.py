"""A ladder or comparison in a run folder: its trials, its manifest and its execution."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from tune_calib.data.shift import find_sets
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.imports import refuse_other_imports
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import Store
from tune_calib.results.folders import read_identity, to_record
from tune_calib.results.manifests import (
    RUN_MANIFEST,
    VERSION,
    DesignRecord,
    FactorRecord,
    PlannedRecord,
    RunManifest,
    SearchEvaluated,
    TunedManifest,
)
from tune_calib.spec import plugins
from tune_calib.spec.design import fit_design
from tune_calib.spec.ladder import LADDERS, Design, Ladder, PlannedTrial, expand, select_rungs
from tune_calib.spec.names import IN_PROCESS, POOL
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.request import AblateRequest, CompareRequest, LadderOptions
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count
from tune_calib.tuning.caption import describe_setting, origin_records, titles
from tune_calib.tuning.folder import (
    Provenance,
    Result,
    RunLocation,
    build_foreign_error,
    done,
    hash_json,
    refuse_foreign,
)
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.reuse import Copies, copy_rows, find_rows
from tune_calib.tuning.share import resolve_share
from tune_calib.tuning.work.executor import Source
from tune_calib.tuning.work.jobs import (
    Job,
    JobSource,
    RemainingWork,
    find_extra_jobs,
    make_plan,
    resources_of,
)

# So few trials on so few images, whose networks are trained, take seconds.
FEW_TRIALS = 32
FEW_IMAGES = 5000


@dataclass(frozen=True)
class LadderRun:
    """A ladder or comparison in a run folder, with extra evaluations of its trials."""

    ladder: Ladder
    resolved: ResolvedRequest
    location: RunLocation
    options: LadderOptions = field(default_factory=LadderOptions)
    parts: tuple[str, ...] = ()  # what its folder may contain before the run: searches
    # Written before its manifest, with folders.
    records: tuple[tuple[TunedManifest | SearchEvaluated, AnyPath], ...] = ()
    is_search: bool = False  # its trials do not read test

    @cached_property
    def name(self) -> str:
        return self.ladder.name

    @cached_property
    def planned_trials(self) -> list[PlannedTrial]:
        return expand(self.ladder, self.resolved)

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        recipe = self.resolved.recipe
        origins = [LADDERS.origin(self.name)] if self.name in LADDERS else []
        if recipe and recipe.name in RECIPES:
            origins.append(RECIPES.origin(recipe.name))
        for trial in self.planned_trials:
            origins.extend(trial.spec.plugins)
        return plugins.used(origins)

    @cached_property
    def shift_sets(self) -> list[str]:
        data = self.planned_trials[0].spec.data
        return find_sets(self.options.shift, data, self.location.data_root)

    def check(self) -> None:
        _ = self.shift_sets
        for trial in self.planned_trials:
            if trial.spec.members and trial.spec.data.imported is not None:
                refuse_other_imports(trial.spec.members, Store(self.location.store))

    def build_manifest(self) -> RunManifest:
        """Build the manifest; that of its folder may differ only in seeds and controls."""
        out, new = self.location.out, self.new_manifest
        old = RunManifest.find(out)
        if old is None:
            identity = read_identity(out)
            if identity is None:
                refuse_foreign(out, RUN_MANIFEST, *self.parts)
            elif identity != new.sweep:
                raise build_foreign_error(out, "run", f"its {RUN_MANIFEST} is lost")
            return new
        if old.sweep != new.sweep:
            why = ""
            if old.recipe and new.recipe and old.recipe.settings != new.recipe.settings:
                why = f": its recipe {old.recipe.name} has other settings; report still reads it"
            raise build_foreign_error(out, "run", old.command, why)
        axes = "network_seed", "head_seed", "split_seed", "calib_size", "imported"
        cell = attrgetter("rung", *axes)
        old_hashes = {cell(trial): trial.spec_hash for trial in old.planned}
        for trial in new.planned:
            if old_hashes.get(cell(trial), trial.spec_hash) != trial.spec_hash:
                label = next(rung.label for rung in new.rungs if rung.index == trial.rung)
                if label.startswith(POOL):
                    raise UserError(
                        f"{out} has {label!r} over fewer or more seeds, and a pool of others is "
                        "another one; set pool.size, or name another `out`",
                        setting="out",
                    )
                raise UserError(
                    f"{out} was begun by a version of the program with other defaults ({label!r} "
                    "would now be another trial); report still reads it, but to continue, name "
                    "another `out`",
                    setting="out",
                )
        # Of equal entries one remains; new ones follow the old ones.
        rungs = {rung.index: rung for rung in [*old.rungs, *new.rungs]}
        planned = {trial.spec_hash: trial for trial in [*old.planned, *new.planned]}
        plugins_by_name = {record.name: record for record in [*old.plugins, *new.plugins]}
        merged: dict[str, Any] = {
            "rungs": sorted(rungs.values(), key=attrgetter("index")),
            "planned": list(planned.values()),
            "network_seeds": sorted({*old.network_seeds, *new.network_seeds}),
            "head_seeds": sorted({*old.head_seeds, *new.head_seeds}),
            "split_seeds": sorted({*old.split_seeds, *new.split_seeds}),
            "titles": {**old.titles, **new.titles},
            "imports": {**old.imports, **new.imports},
            "plugins": list(plugins_by_name.values()),
        }
        return new.model_copy(update=merged).over(old)

    @cached_property
    def new_manifest(self) -> RunManifest:
        planned, ladder, seeds = self.planned_trials, self.ladder, self.resolved.seeds
        identity = self.resolved.identity()
        identity = {"ladder": ladder.name, **identity, "is_paired": seeds.is_paired}
        if isinstance(self.options, AblateRequest):
            options = self.options.model_dump(include={"design", "posthoc"}, exclude_defaults=True)
            identity |= options
        rungs = select_rungs(ladder, self.resolved)
        # Controls that were not requested are not part of the run.
        used = sorted({trial.rung for trial in planned})
        imports = {record["digest"]: name for name, record in self.resolved.imports.items()}
        if any(rung.pool for rung in ladder.rungs):  # one classifier of them is no benchmark
            imports = {}
        return RunManifest(
            version=VERSION,
            sweep=hash_json(identity),
            ladder=ladder.name,
            title=ladder.title,
            command=self.location.command,
            dataset=planned[0].spec.data.dataset,
            setting=describe_setting(planned, ladder, self.resolved),
            published=ladder.published,
            rungs=[to_record(index, rungs[index]) for index in used],
            network_seeds=sorted(set(seeds.network)),
            head_seeds=sorted(set(seeds.head)),
            paired_seeds=seeds.is_paired,
            split_seeds=list(self.resolved.split_seeds),
            planned=[_to_planned_record(trial, self.resolved) for trial in planned],
            titles=titles(planned, self.location),
            imports=imports,
            design=_to_design_record(ladder.design),
            **origin_records(self.resolved, self.plugins),
        )

    def read_files(self, is_dry: bool) -> "LadderRun":
        data_root, store = self.location.data_root, self.location.store
        resolved = resolve_files(self.resolved, data_root, store, is_dry=is_dry)
        tune = getattr(self.options, "tune", None)
        if resolved.imports and (self.name in LADDERS or tune is not None):
            raise UserError("names several imports, which only a comparison takes", "imported")
        if resolved.imports and len(self.ladder.rungs) == 1 and not self.ladder.rungs[0].pool:
            raise UserError(
                "one method has no rank among several imports; name another one as well, such as "
                "vanilla, the network as it is"
            )
        run = replace(self, resolved=resolved)
        if self.location.address is None and run._is_brief:
            return replace(run, location=replace(self.location, address=IN_PROCESS))
        return run

    @property
    def _is_brief(self) -> bool:
        """Return whether Ray would take longer to start than the trials that are left."""
        if self.resolved.is_imported:
            return not any("head" in rung.slots for rung in self.ladder.rungs)
        location, options = self.location, self.options
        is_tuned = isinstance(options, CompareRequest) and options.tune is not None
        if is_tuned or options.shift or location.gpus or location.chooses_gpus:
            return False
        left, store = self._find_left(), Store(location.store)
        if len(left) > FEW_TRIALS:
            return False
        for spec in {spec.network_id: spec for spec in left}.values():
            images = spec.data.info.published
            if images is None or sum(images) > FEW_IMAGES or spec.network.portable:
                return False
            if not has_network(spec, store):
                return False
        return True

    def _find_left(self) -> list[TrialSpec]:
        finished = done(self.location.out)
        return [trial.spec for trial in self.planned_trials if trial.spec.hash not in finished]

    def choose_gpus(self) -> "LadderRun":
        if not self.location.chooses_gpus:
            return self
        return replace(self, location=resolve_share(self.location, self._find_left()))

    def plan(self, reads_shifts: bool = True) -> RemainingWork:
        """Plan the trials without a row, and the extra evaluations that finished trials lack."""
        work = make_plan(self.planned_trials, done(self.location.out))
        extra = tuple(self._find_extra() if reads_shifts else ())
        jobs = work.networks + work.head_batches + extra
        return replace(work, extra=extra, needs=resources_of(jobs, self.location.gpus))

    def _find_extra(self) -> list[Job]:
        draws = self.options.bootstrap
        return find_extra_jobs(self.shift_sets, draws, self.planned_trials, out=self.location.out)

    def open(self, work: RemainingWork) -> RemainingWork:
        """Return the work, as a search returns its state."""
        return work

    def reuse(self, work: RemainingWork, copies: Copies) -> RemainingWork:
        """Copy rows of equal trials from other folders; return the remaining work."""
        trials, out = self.planned_trials, self.location.out
        folders = find_rows(trials, out, self.location.among, copies)
        if not folders:
            return work
        manifest = self.build_manifest()
        manifest.write(out)  # before the first row
        copy_rows(folders, trials, out, manifest.sweep, ladder=self.name, sets=self.shift_sets)
        return self.plan()

    def sources(
        self, work: RemainingWork, provenance: Provenance, tracker: Tracker
    ) -> Iterator[Source]:
        deadline = self.location.deadline
        if work.networks and not deadline.is_over:
            title, waiting = "networks and heads", work.head_batches
            yield JobSource(title, work.networks, provenance, waiting, deadline.time)
        # With those of the trials that have just finished.
        extra = self._find_extra() if work.networks else work.extra
        if extra and not deadline.is_over:
            yield JobSource("extra evaluations", extra, provenance, deadline=deadline.time)

    def finish(self, work: RemainingWork) -> Result:
        """Return the crashes, and what the limit of time left undone."""
        crashed, deadline = list(work.errors.values()), self.location.deadline
        if not deadline.is_over or (remaining := self.plan()).is_over:
            return Result(crashed)
        trials = sum(len(job.dependents) for job in remaining.networks)
        evaluations = sum(len(job.trials) for job in remaining.extra)
        planned = format_count(len(self.planned_trials), "trial")
        left = f"{trials} of {planned} and {format_count(evaluations, 'extra evaluation')}"
        return Result(crashed, deadline.describe(left))


def _to_planned_record(trial: PlannedTrial, resolved: ResolvedRequest) -> PlannedRecord:
    spec, data = trial.spec, trial.spec.data
    return PlannedRecord(
        spec_hash=spec.hash,
        rung=trial.rung,
        network_seed=spec.network.seed,
        head_seed=spec.head.seed if spec.head else None,
        split_seed=data.split_seed if resolved.split_seeds else None,
        # A size that the whole run has is a setting like others.
        calib_size=data.calib_size if resolved.calib_sizes else None,
        imported=data.import_record.digest if data.import_record and resolved.imports else None,
    )


def _to_design_record(design: Design | None) -> DesignRecord | None:
    if design is None:
        return None
    factors = [FactorRecord(name=each.name, needs=list(each.needs)) for each in design.factors]
    order, cells = [factor.name for factor in factors], dict[str, list[list[str]]]()
    for label, equal in design.cells.items():
        cells[label] = [sorted(cell, key=order.index) for cell in equal]
    return DesignRecord(
        name=design.name,
        factors=factors,
        cells=cells,
        posthoc=design.posthoc,
        invalid=dict(design.invalid),
    )


def build_ladder_run(
    request: AblateRequest | CompareRequest,
    ladder: Ladder,
    resolved: ResolvedRequest,
    command: str,
    among: AnyPath | None = None,
) -> LadderRun:
    location = RunLocation.of_request(request, command, among)
    return LadderRun(fit_design(ladder, resolved), resolved, location, options=request)
