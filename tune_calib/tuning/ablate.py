"""One ladder, end to end: expand, plan, run what is missing, leave a folder that analysis reads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tune_calib.console import echo
from tune_calib.engine.machine import environment_of
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, require_writable
from tune_calib.progress import report_progress
from tune_calib.results import contents
from tune_calib.results.folders import find_sweep_manifest
from tune_calib.results.manifests import (
    SWEEP_MANIFEST,
    VERSION,
    PlannedRecord,
    RungRecord,
    SweepManifest,
)
from tune_calib.results.plugin_folders import (
    merge_records,
    require_loaded,
    store_sources,
    to_records,
)
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import LADDERS, Ladder, PlannedTrial, Rung, expand, select_rungs
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.caption import (
    conditions,
    recipe_record,
    tell_left_out,
    titles,
)
from tune_calib.tuning.copies import Copies
from tune_calib.tuning.extra import ExtraEvaluations, lacking_looks
from tune_calib.tuning.folder import (
    build_foreign_error,
    done,
    explain_other_recipe,
    hash_request,
    only_driver,
    refuse_foreign,
    refuse_mended,
)
from tune_calib.tuning.loggers.follow import followed
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.ray.execution import (
    execute,
    execute_extra,
    open_executor,
    resources_of,
)
from tune_calib.tuning.ray.executor import Resources, refuse_here
from tune_calib.tuning.ray.extra import ExtraTrial
from tune_calib.tuning.ray.plan import Plan, lacking, make_plan
from tune_calib.tuning.reuse import copy_rows
from tune_calib.tuning.site import Site


@dataclass(frozen=True)
class LadderJob:
    """A ladder or comparison in a run folder.

    Attributes:
        ladder: the ladder.
        asked: settings, seeds and whether its controls are run.
        site: where.
        look: extra evaluations of its finished trials.
    """

    ladder: Ladder
    asked: ResolvedRequest
    site: Site
    look: ExtraEvaluations = field(default_factory=ExtraEvaluations)

    def planned(self) -> list[PlannedTrial]:
        """Its trials."""
        return expand(self.ladder, self.asked)


@dataclass(frozen=True)
class Left:
    """The part of a ladder that is left to do.

    Attributes:
        plan: planned minus done.
        looks: extra evaluations that finished trials lack.
    """

    plan: Plan
    looks: list[ExtraTrial]

    @property
    def trials(self) -> list[PlannedTrial]:
        """List the planned trials that are not done."""
        return [trial for network in self.plan.networks for trial in network.dependents]

    @property
    def is_nothing(self) -> bool:
        """Return whether all is done."""
        return not self.plan.networks and not self.looks

    def resources(self, gpus: float) -> list[Resources]:
        """List what its Ray trials need."""
        kinds = {(look.threads, look.precision) for look in self.looks}
        own = [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]
        return resources_of(self.plan, gpus) + own


def ablate(job: LadderJob, begin: Callable[[LadderJob], None] = lambda job: None) -> list[str]:
    """Run what is missing of a ladder.

    Args:
        job: the ladder.
        begin: says what is about to be done, where something is.

    Returns:
        One line for each Ray trial that crashed.
    """
    site, look = job.site, job.look
    require_loaded(site.out)
    report_progress("planning trials")
    planned = job.planned()
    data = planned[0].spec.data

    def find_left() -> Left:
        plan = make_plan(planned, done(site.out))
        return Left(plan, lacking_looks(look, sets, planned, site.out))

    # What can be refused by reading alone is refused before the folder is made.
    DATASETS[data.dataset].locate(site.data_root)
    sets = look.list_sets(data, site.data_root)
    own = new_manifest(job, planned)
    extended(own, site.out)
    everywhere = environment_of(trial.spec for trial in planned)
    needs = find_left().resources(site.gpus)
    refuse_here(site.address, needs, everywhere)

    with only_driver(site.out), show_driver(site.out):
        # Once more: another driver may have extended the sweep meanwhile.
        manifest, left = extended(own, site.out), find_left()
        if not left.is_nothing:
            store = Store(site.store)
            copies = Copies.read((trial.spec.data for trial in planned), site.data_root, store)
            copies.refuse_other(site.out, left.trials)
            if lacks := lacking(left.plan, store, is_search=False):
                require_writable(site.store, lacks[0])
            tell_left_out(job.ladder, job.asked, site.out)
        # Before the first trial: a sweep that is killed knows what it planned.
        manifest.write(site.out)
        used = _plugins(job, planned)
        store_sources(site.out, used)
        with followed(site.out, manifest.sweep):
            if left.is_nothing:
                echo(f"nothing is left to do in {site.out}", err=True)
                return []
            begin(job)
            shared = planned, site.out, site.among, manifest.sweep, job.ladder.name, sets
            if copy_rows(*shared, copies):
                left = find_left()
            if left.is_nothing:
                return []
            with open_executor(site, needs, everywhere) as executor:
                provenance = site.provenance(
                    manifest.sweep, job.ladder.name, job.asked.recipe_label, used,
                    digests=copies.digests,
                )  # fmt: skip
                title = "networks and heads"
                crashed = execute(title, left.plan, executor, provenance, site.gpus)
                # Behind them: what is looked at is finished, and a trial never waits for a look.
                looks = lacking_looks(look, sets, planned, site.out)
                return crashed + execute_extra(looks, executor, provenance, site.gpus)


def _plugins(job: LadderJob, planned: list[PlannedTrial]) -> tuple[Plugin, ...]:
    """List the plug-ins behind a ladder, its recipe and its trials."""
    ladder, recipe = job.ladder.name, job.asked.recipe
    own = [LADDERS.origin(ladder)] if ladder in LADDERS else []
    own += [RECIPES.origin(recipe.name)] if recipe and recipe.name in RECIPES else []
    return plugins.used([*own, *(each for trial in planned for each in trial.spec.plugins)])


def sweep_manifest(job: LadderJob, planned: list[PlannedTrial]) -> SweepManifest:
    """Build the manifest of a ladder in its folder; errors as of ``extended``."""
    return extended(new_manifest(job, planned), job.site.out)


def new_manifest(job: LadderJob, planned: list[PlannedTrial]) -> SweepManifest:
    """Build the manifest of a new folder."""
    question: dict[str, Any] = {
        "ladder": job.ladder.name,
        **job.asked.identity(),
        "is_paired": job.asked.seeds.is_paired,
    }
    ladder, seeds = job.ladder, job.asked.seeds
    rungs = select_rungs(ladder, job.asked)
    # Controls that were not asked for are rungs of the ladder, and none of this sweep.
    used = sorted({trial.rung for trial in planned})
    needs = _plugins(job, planned)
    manifest = SweepManifest(
        version=VERSION,
        sweep=hash_request(question),
        ladder=ladder.name,
        title=ladder.title,
        command=job.site.command,
        dataset=planned[0].spec.data.dataset,
        setting=conditions(planned, ladder, job.asked),
        published=ladder.published,
        rungs=[_rung(rungs[index], index) for index in used],
        network_seeds=sorted(set(seeds.network)),
        head_seeds=sorted(set(seeds.head)),
        paired_seeds=seeds.is_paired,
        planned=[_planned(trial) for trial in planned],
        titles=titles(planned),
    )
    further = {
        **({"recipe": recipe} if (recipe := recipe_record(job.asked)) else {}),
        **({"plugins": to_records(needs)} if needs else {}),
        **({"program": program} if (program := _program(planned)) else {}),
    }
    return manifest.model_copy(update=further)


def _program(planned: list[PlannedTrial]) -> str | None:
    """Digest of the program; None where files beside the command decide what is planned."""
    data, network = planned[0].spec.data, planned[0].spec.network
    is_of_files = data.imported is not None or data.found is not None or network.weights is not None
    return None if is_of_files else contents.digest_program()


def _rung(rung: Rung, index: int) -> RungRecord:
    return RungRecord(
        index=index,
        label=rung.label,
        ingredient=rung.ingredient,
        published=rung.published,
        kind=rung.kind,
    )


def _planned(trial: PlannedTrial) -> PlannedRecord:
    return PlannedRecord(
        spec_hash=trial.spec.hash,
        rung=trial.rung,
        network_seed=trial.spec.network.seed,
        head_seed=trial.spec.head.seed if trial.spec.head else None,
    )


def extended(new: SweepManifest, out: AnyPath) -> SweepManifest:
    """Extend a manifest by what the folder holds already, which must be the same request.

    Seeds and controls may be added to a sweep; everything else makes another sweep.
    """
    old = find_sweep_manifest(out)
    if old is None:
        refuse_foreign(out, SWEEP_MANIFEST)
        return new
    if old.sweep != new.sweep:
        raise build_foreign_error(out, "sweep", old.command, explain_other_recipe(old, new))
    _refuse_other_defaults(old, new, out)
    refuse_mended(out)
    # By their identity: what is in both is one, and what is new stands behind.
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


def _refuse_other_defaults(old: SweepManifest, new: SweepManifest, out: AnyPath) -> None:
    """Refuse to mix trials of one rung and seed that are not the same trial any more."""
    before = {_cell(trial): trial.spec_hash for trial in old.planned}
    for trial in new.planned:
        if before.get(_cell(trial), trial.spec_hash) != trial.spec_hash:
            label = next(rung.label for rung in new.rungs if rung.index == trial.rung)
            raise UserError(
                f"`out` {out} was begun by a version of the program with other defaults "
                f"({label!r} would be another trial now); report still reads it, but to go on "
                "name another `out`"
            )


def _cell(trial: PlannedRecord) -> tuple[int, int, int | None]:
    """Identify a planned trial within its run, whatever its settings are."""
    return trial.rung, trial.network_seed, trial.head_seed
