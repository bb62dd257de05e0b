"""One ladder, end to end: expand, plan, run what is missing, leave a folder that analysis reads."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations._ladder import Ladder, PlannedTrial, Rung, Seeds, Settings, expand
from tune_calib.data.splits import load_development
from tune_calib.engine.store import Store
from tune_calib.manifests import SWEEP_MANIFEST, sweep_of
from tune_calib.places import Place, environment, require_writable
from tune_calib.results import atomic_write
from tune_calib.tuning.folder import (
    done,
    holds_another,
    identity_of,
    only_driver,
    refuse_foreign,
)
from tune_calib.tuning.launch import Resources, network_threads, ray_session
from tune_calib.tuning.plan import make_plan
from tune_calib.tuning.record import Run
from tune_calib.tuning.schedule import run_plan
from tune_calib.wording import counted


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
        cpus: cores of a network trial; the machine's are shared out unless given.
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
    cpus: int | None = None


def ablate(request: Request) -> list[str]:
    """Run what is missing of a ladder.

    Returns:
        One line for each Ray trial that crashed.

    Raises:
        UserError: a setting is wrong, the data is not there, or ``out`` holds another sweep.
    """
    planned = expand(
        request.ladder, request.defaults, request.given, request.seeds, request.with_controls
    )
    data = planned[0].spec.data
    manifest = _manifest_of(request, planned)
    # In the driver, so that a missing root is one line before anything starts.
    store = Store(request.store)
    load_development(data, request.data_root, store.images)
    require_writable(request.store)
    atomic_write(request.out / SWEEP_MANIFEST, json.dumps(manifest, indent=1).encode())
    run = Run(
        out=str(request.out.resolve()),
        store=str(request.store.resolve()),
        data_root=str(request.data_root.resolve()) if request.data_root else None,
        sweep=manifest["sweep"],
        ladder=request.ladder.name,
        device="cuda" if request.gpus else "cpu",
    )
    with only_driver(request.out):
        plan = make_plan(planned, done(request.out))
        if not plan.networks:
            return []
        with ray_session(request.address, environment(request.out, request.store)):
            threads = request.cpus or network_threads(len(make_plan(planned, set()).networks))
            return run_plan("networks and heads", plan, run, Resources(threads, request.gpus))


def _manifest_of(request: Request, planned: list[PlannedTrial]) -> dict[str, Any]:
    """What the folder of the sweep says of it; what it says already must be the same question.

    Seeds and controls may be added to a sweep; everything else makes another sweep.
    """
    question = {
        "ladder": request.ladder.name,
        "defaults": request.defaults,
        "given": request.given,
        "is_paired": request.seeds.is_paired,
    }
    manifest = _new_manifest(request, planned, identity_of(question))
    old = sweep_of(request.out)
    if old is not None:
        return _extend(old, manifest, request.out)
    refuse_foreign(request.out, SWEEP_MANIFEST)
    return manifest


def _new_manifest(request: Request, planned: list[PlannedTrial], identity: str) -> dict[str, Any]:
    used = sorted({trial.rung for trial in planned})
    return {
        "version": 1,
        "sweep": identity,
        "ladder": request.ladder.name,
        "title": request.ladder.title,
        "command": request.command,
        "dataset": planned[0].spec.data.dataset,
        "setting": describe(planned),
        "published": request.ladder.published,
        "rungs": [_rung(request.ladder.rungs[index], index) for index in used],
        "network_seeds": sorted(set(request.seeds.network)),
        "head_seeds": sorted(set(request.seeds.head)),
        "paired_seeds": request.seeds.is_paired,
        "planned": [_planned(trial) for trial in planned],
    }


def _rung(rung: Rung, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "label": rung.label,
        "ingredient": rung.ingredient,
        "published": rung.published,
        "kind": rung.kind,
    }


def _planned(trial: PlannedTrial) -> dict[str, Any]:
    return {
        "spec_hash": trial.spec.hash,
        "rung": trial.rung,
        "network_seed": trial.spec.network.seed,
        "head_seed": trial.spec.head.seed if trial.spec.head else None,
    }


def describe(planned: list[PlannedTrial]) -> str:
    """One line that says data, network and head recipe of a ladder."""
    spec = planned[0].spec
    data, network = spec.data, spec.network
    parts = [data.dataset]
    if data.train_fraction < 1:
        parts.append(f"{data.train_fraction:g} of the training split")
    if data.label_noise:
        parts.append(f"label noise {data.label_noise:g}")
    if data.imbalance > 1:
        parts.append(f"imbalance {data.imbalance:g}")
    methods = {trial.spec.network.method for trial in planned}
    loss = f", {network.method}" if len(methods) == 1 else ""
    parts.append(f"{network.backbone}{loss}, {counted(network.epochs, 'epoch')}")
    head = next((trial.spec.head for trial in planned if trial.spec.head), None)
    if head is not None:
        epochs = counted(head.epochs, "epoch")
        parts.append(f"heads {epochs} at lr {head.lr:g}, batch {head.batch_size}")
    return "; ".join(parts)


def _extend(old: dict[str, Any], new: dict[str, Any], out: Place) -> dict[str, Any]:
    if old.get("sweep") != new["sweep"]:
        raise holds_another(out, "sweep", old)
    for key, identity in (("rungs", "index"), ("planned", "spec_hash")):
        merged = {entry[identity]: entry for entry in [*old[key], *new[key]]}
        new[key] = list(merged.values())
    for key in ("network_seeds", "head_seeds"):
        new[key] = sorted({*old[key], *new[key]})
    new["rungs"].sort(key=lambda rung: rung["index"])
    return new
