"""Build the experiment file that reproduces a table of a paper, and record how it was run."""

import importlib.metadata
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from tune_calib.engine.machine import machine
from tune_calib.errors import UserError
from tune_calib.experiments.file import ReadFile
from tune_calib.files.documents import seal
from tune_calib.files.paths import AnyPath, atomic_write, parse_path
from tune_calib.results.folders import LOCK, read_lock, read_run_manifest
from tune_calib.results.tables import read_table
from tune_calib.spec.experiment import Entry, ExperimentFile, SeedCounts
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.names import SLOTS
from tune_calib.spec.recipe import by_slot, merge_settings
from tune_calib.spec.reproduction import Claim, ReproduceRequest, Reproduction, Setting
from tune_calib.tuning.folder import git_revision, refuse_foreign
from tune_calib.tuning.pictures import take_pictures
from tune_calib.tuning.plan import Plan

_AND = " && "
_PROVENANCE = (
    "git_revision", "versions", "processor", "instruction_set", "gpu", "execution", "threads",
)  # fmt: skip

# A placeholder for weights in a forecast for another GPU, which may be missing.
_ANY_WEIGHTS = Path("0000000000000000")


@dataclass(frozen=True)
class TableRequest:
    """A requested table; a forecast for a named GPU needs neither the GPU nor data and weights."""

    table: Reproduction
    request: ReproduceRequest
    gpu_model: str | None = None

    @property
    def out(self) -> AnyPath:
        """Return the folder of all tables, which share its ``store``."""
        return parse_path(self.request.out or f"runs/reproduce-{self.request.scale}")

    @property
    def settings(self) -> dict[int, Setting]:
        """Return the settings of the scale by position; frozen networks need `weights`."""
        has_weights = self.request.weights is not None
        requested = self._requested.items()
        return {i: setting for i, setting in requested if has_weights or not setting.weights}

    @property
    def left_out(self) -> list[str]:
        """Return the weight files of the frozen networks that are left out."""
        positions = self._requested.keys() - self.settings.keys()
        files = [self._requested[index].weights.values() for index in sorted(positions)]
        return list(chain.from_iterable(files))

    @property
    def _requested(self) -> dict[int, Setting]:
        settings = {}
        for index, setting in enumerate(self.table.scales[self.request.scale]):
            requested = self.request.dataset or setting.datasets
            if datasets := tuple(name for name in setting.datasets if name in requested):
                settings[index] = setting.model_copy(update={"datasets": datasets})
        return settings

    def weights_path(self, file: str) -> Path:
        """Return the path of a file of weights, or a placeholder for one that need not be here."""
        return _ANY_WEIGHTS if self.request.weights is None else self.request.weights / file


def build_file(request: TableRequest) -> ReadFile:
    """Build the experiment file of a table at a scale."""
    if request.gpu_model is not None:
        GPUS.require(request.gpu_model)
    entries, source = list(_build_entries(request)), request.table.source
    lines = dict(source.lines)
    for name, run, index, _ in entries:
        parents = (("scales", request.request.scale, index), ("entries", run))
        for parent, (position, line) in product(parents, source.lines.items()):
            depth = len(parent)
            if position[:depth] == parent:
                lines["entries", name, *position[depth:]] = line
    content = {
        "out": str(request.out / request.table.folder),
        "store": str(request.out / "store"),
        "data_root": request.request.data_root,
        "address": request.request.address,
        "gpu_model": request.gpu_model,
        "entries": {name: entry for name, _, _, entry in entries},
    }
    overrides = request.request.set or {}
    source = replace(source, value=content, lines=lines, overrides=overrides)
    return ReadFile(request.table.name, source, source.validate(ExperimentFile), among=request.out)


def find_runs(request: TableRequest) -> dict[str, str]:
    """Return the run in the table of each entry of its experiment file."""
    return {name: run for name, run, _, _ in _build_entries(request)}


def store_logits(request: TableRequest, plan: Plan) -> list[str]:
    """Store the logits of all trials for figures and quantities; return an error as a line."""
    if not request.table.entries[find_runs(request)[plan.entry]].logits:
        return []
    location = plan.run.location
    device = "cuda" if location.gpus and torch.cuda.is_available() else "cpu"
    try:
        take_pictures(location.out, location.store, location.data_root, device=device, every=True)
    except UserError as error:  # the table then lacks only these
        return [f"{plan.name}: {error}"]
    return []


def _build_entries(request: TableRequest) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Yield name, run, position of the setting, and content of each entry."""
    table, settings = request.table, request.settings
    for (run, entry), (index, setting) in product(table.entries.items(), settings.items()):
        slots = {*SLOTS[:2]}
        for rung in entry.build_ladder().rungs:
            slots.update(rung.slots)
        # Later parts override earlier ones.
        content, overrides = dict[str, Any](), dict[str, Any]()
        for part in (table, setting, entry):
            fields = set(Entry.model_fields)
            values = part.model_dump(include=fields, exclude_unset=True, by_alias=True)
            overrides = merge_settings(overrides, values.pop("set", {}))
            content |= values
        merged = {slot: keys for slot, keys in overrides.items() if slot in slots}
        merged = merge_settings(merged, by_slot(request.request.set or {}))
        seeds = SeedCounts.model_validate(content.get("seeds", {}))
        if request.request.seeds is not None:
            seeds = SeedCounts(both=request.request.seeds)
        content |= {"set": merged, "seeds": seeds}
        if request.request.gpus is not None:
            content["resources"] = {"gpus": request.request.gpus}
        network = merged.get("network", {})
        if not setting.weights:
            if setting.start:
                weights = str(request.weights_path(setting.start))
                merged["network"] = {**network, "weights": weights}
            name = f"{run}-{index}" if index else run
            yield name, run, index, content
        for backbone, file in setting.weights.items():
            weights = str(request.weights_path(file))
            frozen = {
                "network": {**network, "epochs": 0, "weights": weights},
                "data": {"holdout": "test", **merged.get("data", {})},
            }
            of_network = {
                "backbones": [backbone],
                # There is one network, so only the heads have seeds.
                "seeds": {"networks": 1, "heads": seeds.head_seeds or seeds.seeds or 1},
                "set": {**merged, **frozen},
            }
            yield f"{run}-given-{backbone}", run, index, {**content, **of_network}


def refuse_lacking(request: TableRequest) -> None:
    """Refuse a scale or data set that a table lacks, and weights that need a folder."""
    ask, table = request.request, request.table
    if ask.scale not in table.scales:
        raise UserError(f"no scale {ask.scale!r}, only {', '.join(table.scales)}")
    settings = table.scales[ask.scale]
    datasets = dict.fromkeys(chain.from_iterable(setting.datasets for setting in settings))
    if others := [name for name in ask.dataset if name not in datasets]:
        text = f"no {', '.join(others)} at scale {ask.scale!r}, only {', '.join(datasets)}"
        raise UserError(text)
    for setting in request.settings.values():
        if setting.start and ask.weights is None and request.gpu_model is None:
            raise UserError(f"no {setting.start}, so name its folder by `weights`")


def refuse_other(request: TableRequest, file: ReadFile, plans: Iterable[Plan]) -> None:
    """Refuse a folder of another table or scale; it may hold other seeds and frozen networks."""
    lock, scale = read_lock(file.out), request.request.scale
    if lock and (lock.get("table"), lock.get("scale")) != (request.table.name, scale):
        raise UserError(
            f"`out` {request.out} holds {lock.get('table')} at scale {lock.get('scale')!r}, not "
            f"{scale!r}; name another `out`"
        )
    if not lock and not any(plan.run.location.out.exists() for plan in plans):
        refuse_foreign(file.out)
    for plan in plans:
        plan.run.build_manifest()


def update_lock(
    request: TableRequest, out: AnyPath, entries: dict[str, str], command: str
) -> tuple[dict[str, str], str]:
    """Add the entry of each folder that a command has run to the lock file of a table.

    The plan of its claims is written once, before the first trial; and for each folder, the number
    of seeds at the first verdict, after which further seeds are marked.

    Returns the run of each folder, and the command that repeats all of them.
    """
    lock, run_of, runs = read_lock(out), find_runs(request), dict[str, str]()
    for folder, run in lock.get("runs", {}).items():
        if run in request.table.entries and (out / folder).exists():
            runs[folder] = run
    runs |= {folder: run_of[entry] for folder, entry in entries.items()}
    commands = filter(None, str(lock.get("command", "")).split(_AND))
    all_commands = _AND.join(dict.fromkeys([*commands, command]))
    distributions = importlib.metadata.distributions()
    packages = {package.metadata["Name"]: package.version for package in distributions}
    gpus = list(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    if not lock and next(out.glob("*/trials/*.parquet"), None) is None:
        lock["plan"] = _plan_claims(request)
    looks = lock.get("looks", {})
    for folder in entries:
        looks.setdefault(folder, read_run_manifest(out / folder).blocks)
    record = {
        "version": 1,
        "command": all_commands,
        "plan": lock.get("plan"),
        "looks": looks,
        "table": request.table.name,
        "scale": request.request.scale,
        "runs": runs,
        # The program that wrote this file last, which need not have run any trial.
        "program": {
            "git_revision": git_revision(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": {**machine(), "gpus": gpus},
            "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        },
        # The programs that computed the numbers, perhaps on other machines.
        "trials": {folder: _list_provenance(out / folder) for folder in runs},
    }
    atomic_write(out / LOCK, seal(record))
    return runs, all_commands


def _plan_claims(request: TableRequest) -> dict[str, Any]:
    seeds = {}
    for name, entry in build_file(request).content.entries.items():
        counts = entry.seeds
        seeds[name] = counts.seeds or max(counts.network_seeds or 1, counts.head_seeds or 1)
    claims = TypeAdapter(tuple[Claim, ...])
    dumped = claims.dump_python(request.table.claims, mode="json", exclude_defaults=True)
    return {"claims": dumped, "seeds": seeds}


def _list_provenance(folder: AnyPath) -> list[dict[str, Any]]:
    rows = read_table(folder, "trials", columns=_PROVENANCE).to_pylist()
    counts = Counter(tuple(map(row.get, _PROVENANCE)) for row in rows)
    kinds = []
    for values, count in counts.items():
        kind = {**dict(zip(_PROVENANCE, values, strict=True)), "trials": count}
        kinds.append({**kind, "versions": json.loads(kind["versions"] or "null")})
    return kinds
