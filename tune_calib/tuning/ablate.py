"""One ladder, end to end: expand, plan, run what is missing, leave a folder that analysis reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_calib.data.splits import load_development
from tune_calib.engine.machine import environment_of
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.folders import sweep_of
from tune_calib.ladder import Ladder, PlannedTrial, Rung, Seeds, expand
from tune_calib.manifests import (
    SWEEP_MANIFEST,
    VERSION,
    PlannedRecord,
    RungRecord,
    SweepManifest,
)
from tune_calib.places import Place, environment, require_writable
from tune_calib.recipes import Settings
from tune_calib.registry import DATASETS
from tune_calib.tuning.backend.feed import resources_of, run_plan
from tune_calib.tuning.backend.launch import ray_session, refuse_here
from tune_calib.tuning.backend.plan import lacking, make_plan
from tune_calib.tuning.backend.rows import Run
from tune_calib.tuning.caption import describe, titles
from tune_calib.tuning.folder import (
    done,
    holds_another,
    identity_of,
    only_driver,
    refuse_foreign,
    refuse_mended,
)
from tune_calib.tuning.resumed import tell_other_machine


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line.

    Attributes:
        ladder: the ladder.
        defaults: settings by slot that suit the data set.
        given: settings by slot that were asked for.
        seeds: seeds of networks and heads.
        with_controls: add the ladder's controls.
        out: folder of the results.
        store: folder of the artifacts.
        data_root: where data sets lie.
        address: of a Ray cluster, or None for this machine.
        gpus: GPUs of a Ray trial, 0, 1 or 1/k.
        command: to do the same again.
        own_recipes: train each method by the recipe of its authors.
    """

    ladder: Ladder
    defaults: Settings
    given: Settings
    seeds: Seeds
    with_controls: bool
    out: Place
    store: Place
    data_root: Path | None
    address: str | None
    gpus: float
    command: str
    own_recipes: bool = False


def ablate(request: Request) -> list[str]:
    """Run what is missing of a ladder.

    Returns:
        One line for each Ray trial that crashed.

    Raises:
        UserError: a setting is wrong, the data is not there, or ``out`` holds another sweep.
    """
    planned = expand(
        request.ladder,
        request.defaults,
        request.given,
        request.seeds,
        request.with_controls,
        request.own_recipes,
    )
    data = planned[0].spec.data
    # What can be refused by reading alone is refused before the folder is made.
    DATASETS[data.dataset].locate(request.data_root)
    _manifest_of(request, planned)
    everywhere = environment_of(trial.spec for trial in planned)
    needs = resources_of(make_plan(planned, done(request.out)), request.gpus)
    refuse_here(request.address, needs)
    with only_driver(request.out):
        # Once more: another driver may have extended the sweep meanwhile.
        manifest = _manifest_of(request, planned)
        # In the driver, so that damaged data is one line before anything starts.
        store = Store(request.store)
        load_development(data, request.data_root, store.images)
        plan = make_plan(planned, done(request.out))
        if lacks := lacking(plan, store, is_search=False):
            require_writable(request.store, lacks[0])
        manifest.write(request.out)
        if not plan.networks:
            return []
        reached = environment(request.out, request.store)
        with ray_session(request.address, reached, needs, everywhere):
            tell_other_machine(request.out, request.address)
            run = _run_of(request, manifest.sweep)
            return run_plan("networks and heads", plan, run, request.gpus)


def _run_of(request: Request, sweep: str) -> Run:
    return Run(
        out=str(request.out.resolve()),
        store=str(request.store.resolve()),
        data_root=str(request.data_root.resolve()) if request.data_root else None,
        sweep=sweep,
        ladder=request.ladder.name,
        device="cuda" if request.gpus else "cpu",
    )


def _manifest_of(request: Request, planned: list[PlannedTrial]) -> SweepManifest:
    """What the folder of the sweep says of it; what it says already must be the same question.

    Seeds and controls may be added to a sweep; everything else makes another sweep.
    """
    question: dict[str, Any] = {
        "ladder": request.ladder.name,
        "defaults": request.defaults,
        "given": request.given,
        "is_paired": request.seeds.is_paired,
        # Only where asked for: a sweep without it is the one that it was before there was any.
        **({"own_recipes": True} if request.own_recipes else {}),
    }
    manifest = _new_manifest(request, planned, identity_of(question))
    old = sweep_of(request.out)
    if old is not None:
        return _extend(old, manifest, request.out)
    refuse_foreign(request.out, SWEEP_MANIFEST)
    return manifest


def _new_manifest(request: Request, planned: list[PlannedTrial], identity: str) -> SweepManifest:
    used = sorted({trial.rung for trial in planned})
    return SweepManifest(
        version=VERSION,
        sweep=identity,
        ladder=request.ladder.name,
        title=request.ladder.title,
        command=request.command,
        dataset=planned[0].spec.data.dataset,
        setting=describe(planned, request.ladder, request.own_recipes),
        published=request.ladder.published,
        rungs=[_rung(request.ladder.rungs[index], index) for index in used],
        network_seeds=sorted(set(request.seeds.network)),
        head_seeds=sorted(set(request.seeds.head)),
        paired_seeds=request.seeds.is_paired,
        planned=[_planned(trial) for trial in planned],
        titles=titles(planned),
    )


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


def _extend(old: SweepManifest, new: SweepManifest, out: Place) -> SweepManifest:
    """The manifest of a sweep that holds some trials already and gets further ones."""
    if old.sweep != new.sweep:
        raise holds_another(out, "sweep", old.command)
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
    }
    return new.model_copy(update=both).over(old)


def _refuse_other_defaults(old: SweepManifest, new: SweepManifest, out: Place) -> None:
    """Refuse to mix trials of one rung and seed that are not the same trial any more.

    Raises:
        UserError: an earlier version of the program planned another spec.
    """
    before = {_cell(trial): trial.spec_hash for trial in old.planned}
    for trial in new.planned:
        if before.get(_cell(trial), trial.spec_hash) != trial.spec_hash:
            label = next(rung.label for rung in new.rungs if rung.index == trial.rung)
            raise UserError(
                f"--out {out} was begun by a version of the program with other defaults "
                f"({label!r} would be another trial now); report still reads it, but to go on "
                "name another --out"
            )


def _cell(trial: PlannedRecord) -> tuple[int, int, int | None]:
    """What tells a planned trial from the others of its sweep, whatever its settings are."""
    return trial.rung, trial.network_seed, trial.head_seed
