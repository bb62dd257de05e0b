"""From a table of a paper to the sweep file that makes it, and what that lacks here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from tune_calib.errors import UserError
from tune_calib.experiments.entries import Work, merged
from tune_calib.experiments.file import ReadFile
from tune_calib.experiments.lock import joined, read_lock, write_lock
from tune_calib.experiments.run import ladder_job
from tune_calib.paths import AnyPath
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.experiment import Entry, ExperimentFile, SeedCounts
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.names import IN_PROCESS, SLOTS
from tune_calib.spec.reproduction import Reproduction, Scale, Setting
from tune_calib.tuning.ablate import sweep_manifest
from tune_calib.tuning.folder import refuse_foreign
from tune_calib.tuning.pictures import take_pictures

# Stands for weights of which hours are told, and which need not be here.
_ANY_WEIGHTS = "0" * 16


@dataclass(frozen=True)
class Ask:
    """A table as it is asked for.

    Attributes:
        table: the table.
        scale: at which it is made.
        out: folder of all tables, which share its ``store``.
        seeds: instead of those of the scale.
        data_root: folder that holds the data sets.
        weights: folder of networks of others. Without it given ones are left out, and networks
            that others are trained on from are lacking.
        address: of a Ray cluster.
        gpu_model: a GPU by name that hours are told of; then nothing need be here.
    """

    table: Reproduction
    scale: Scale
    out: AnyPath
    seeds: int | None = None
    data_root: Path | None = None
    weights: Path | None = None
    address: str | None = None
    gpu_model: str | None = None

    @property
    def settings(self) -> dict[int, Setting]:
        """Where it is made, by position; given networks only where their folder is named.

        Raises:
            UserError: it is not made at this scale.
        """
        if self.scale not in self.table.scales:
            known = ", ".join(self.table.scales)
            raise UserError(f"{self.table.name} has no scale {self.scale!r}; it has {known}")
        found = enumerate(self.table.scales[self.scale])
        return {i: own for i, own in found if not own.weights or self.weights is not None}

    @property
    def left_out(self) -> list[str]:
        """Files of given networks that are not asked for."""
        if self.weights is not None:
            return []
        return [file for own in self.table.scales[self.scale] for file in own.weights.values()]


@dataclass(frozen=True)
class _Entry:
    """An entry of the experiment file of a table.

    Attributes:
        name: of it.
        run: the entry of the table.
        index: of the setting in its scale.
        content: what it says.
    """

    name: str
    run: str
    index: int
    content: dict[str, Any]


def sweep_file(ask: Ask) -> ReadFile:
    """Return the experiment file that makes a table at a scale.

    Raises:
        UserError: it is not made at this scale, or the number of seeds is none.
    """
    if ask.seeds is not None and ask.seeds < 1:
        raise UserError(f"`seeds` must be at least 1, got {ask.seeds}")
    if ask.gpu_model is not None:
        GPUS.require(ask.gpu_model)
    entries, own = list(_entries(ask)), ask.table.source
    lines = dict(own.lines)
    for entry in entries:
        for above in (("scales", ask.scale, entry.index), ("entries", entry.run)):
            lines |= {
                ("entries", entry.name, *at[len(above) :]): line
                for at, line in own.lines.items()
                if at[: len(above)] == above
            }
    content = {
        "out": str(ask.out / ask.table.folder),
        "store": str(ask.out / "store"),
        "data_root": ask.data_root,
        "address": ask.address,
        "gpu_model": ask.gpu_model,
        "entries": {entry.name: entry.content for entry in entries},
    }
    source = replace(own, value=content, lines=lines)
    return ReadFile(ask.table.name, source, source.validate(ExperimentFile), among=ask.out)


def run_of_entry(ask: Ask) -> dict[str, str]:
    """Return the entry of the table behind each entry of its experiment file."""
    return {entry.name: entry.run for entry in _entries(ask)}


def run_of_folder(ask: Ask, works: Iterable[Work]) -> dict[str, str]:
    """Return the entry of the table behind each folder of results."""
    runs = run_of_entry(ask)
    return {work.name: runs[str(work.position[1])] for work in works}


def keep_logits(ask: Ask, works: Iterable[Work], folder: AnyPath) -> list[str]:
    """Keep the logits that pictures of a folder are drawn from, if its run asks for them.

    Returns:
        A line if they could not be made; a table does not fail for want of a picture.
    """
    by_name = {work.name: work for work in works}
    if not ask.table.entries[run_of_folder(ask, by_name.values())[folder.name]].logits:
        return []
    device = "cuda" if by_name[folder.name].gpus and torch.cuda.is_available() else "cpu"
    try:
        take_pictures(folder, ask.out / "store", ask.data_root, device)
    except UserError as error:
        return [f"{folder.name}: {error}"]
    return []


def _entries(ask: Ask) -> Iterator[_Entry]:
    """Yield an entry for each run and setting; of given networks one for each of them."""
    for (run, what), (index, own) in product(ask.table.entries.items(), ask.settings.items()):
        slots = {slot for rung in what.build_ladder().rungs for slot in rung.slots}
        # Later ones stand above earlier ones.
        parts = [
            part.model_dump(include=set(Entry.model_fields), exclude_unset=True)
            for part in (ask.table, own, what)
        ]
        settings = merged(*(part.pop("set", {}) for part in parts))
        settings = {s: given for s, given in settings.items() if s in {*SLOTS[:2], *slots}}
        content = {**parts[0], **parts[1], **parts[2], "set": settings}
        seeds = SeedCounts.model_validate(content.get("seeds", {}))
        if ask.seeds is not None:
            seeds = SeedCounts(both=ask.seeds)
        content["seeds"] = seeds.model_dump(exclude_unset=True)
        network = settings.get("network", {})
        if not own.weights:
            if own.start:
                settings["network"] = {**network, "weights": _start(ask, own.start)}
            yield _Entry(f"{run}-{index}" if index else run, run, index, content)
        for backbone, file in own.weights.items():
            settings |= {
                "network": {**network, "epochs": 0, "weights": str(_in(ask, file))},
                "data": {**settings.get("data", {}), "holdout": "test"},
            }
            # One network: its heads alone have seeds.
            heads = {"networks": 1, "heads": seeds.heads or seeds.both or 1}
            given = {**content, "backbones": [backbone], "seeds": heads, "set": dict(settings)}
            yield _Entry(f"{run}-given-{backbone}", run, index, given)


def _in(ask: Ask, file: str) -> Path:
    assert ask.weights is not None
    return ask.weights / file


def _start(ask: Ask, file: str) -> str:
    return _ANY_WEIGHTS if ask.weights is None else str(_in(ask, file))


def lacking(ask: Ask, is_dry: bool = False) -> list[str]:
    """What this machine has not that a table needs, a line each: data sets, weights, a GPU.

    Of a GPU elsewhere, by its name, files of weights alone, and those only of a folder that is
    named: what their networks are is read from them. A dry run needs no GPU.
    """
    if ask.scale not in ask.table.scales:
        return [f"no scale {ask.scale!r}, only {', '.join(ask.table.scales)}"]
    found: dict[str, None] = {}
    for own in ask.settings.values():
        for file in (*own.weights.values(), *([own.start] if own.start else [])):
            if ask.weights is not None and not _in(ask, file).is_file():
                found[f"no weights {_in(ask, file)}"] = None
            elif ask.weights is None and ask.gpu_model is None:
                found[f"no {file}: name its folder by `weights`"] = None
    if ask.gpu_model is not None:
        return list(found)
    # A cluster has GPUs of its own.
    has_gpu = ask.address not in (None, IN_PROCESS) or torch.cuda.is_available()
    for entry in sweep_file(ask).content.entries.values():
        foreign = [word for word in entry.shift or () if word in DATASETS]
        for dataset in (*(entry.datasets or ()), *foreign):
            try:
                DATASETS[dataset].locate(ask.data_root)
            except UserError as error:
                found[str(error)] = None
        if entry.resources and entry.resources.gpus and not has_gpu and not is_dry:
            found["no GPU"] = None
    return list(found)


def refuse_lacking(asks: list[Ask], is_dry: bool = False) -> None:
    """Refuse to begin tables for which something is not here.

    Raises:
        UserError: it tells everything at once: also of tables that are not made at their scale.
    """
    found: dict[str, list[str]] = {}
    for ask in asks:
        for line in lacking(ask, is_dry):
            found.setdefault(line, []).append(ask.table.name)
    if found:
        told = "; ".join(f"{line} ({', '.join(names)})" for line, names in found.items())
        raise UserError(f"not here: {told}")


def refuse_other(ask: Ask, file: ReadFile, works: Iterable[Work]) -> None:
    """Refuse a folder that holds anything else than a part of this table at this scale.

    It may hold other seeds of it, and given networks that are not asked for now.

    Raises:
        UserError: it does.
    """
    lock = read_lock(file.out)
    if lock and (lock.get("table"), lock.get("scale")) != (ask.table.name, ask.scale):
        raise UserError(
            f"`out` {ask.out} holds {lock.get('table')} at scale {lock.get('scale')!r}, not "
            f"{ask.scale!r}; name another `out`"
        )
    if not lock and not any((file.out / work.name).exists() for work in works):
        refuse_foreign(file.out)
    for work in works:
        sweep_manifest(ladder_job(file, work, ""), work.planned())


def keep_lock(
    ask: Ask, file: ReadFile, works: Iterable[Work], done: list[AnyPath], command: str
) -> tuple[dict[str, str], str]:
    """Write the lock file of a table.

    Args:
        ask: the table.
        file: its sweep file.
        works: what is asked for now.
        done: folders of it that are done.
        command: that does it.

    Returns:
        Run of each folder that the table has, also of those that were made before and are not
        asked for now; and the command that makes all of them.
    """
    lock, known = read_lock(file.out), ask.table.entries
    before = {
        folder: run
        for folder, run in lock.get("runs", {}).items()
        if run in known and (file.out / folder).exists()
    }
    names = run_of_folder(ask, works)
    runs = before | {folder.name: names[folder.name] for folder in done}
    told = joined(lock, command)
    asked = {"table": ask.table.name, "scale": ask.scale, "runs": runs}
    write_lock(file.out, [file.out / name for name in runs], told, asked)
    return runs, told
