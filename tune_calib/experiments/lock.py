"""Record what someone else needs to make a table again: command, versions, machine, commit."""

import importlib.metadata
import json
import platform
from typing import Any

import torch

from tune_calib.engine.machine import machine
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.results.tables import read_table
from tune_calib.tuning.ray.rows import git_revision

LOCK = "lock.json"
_AND = " && "
_PROVENANCE = ("git_revision", "versions", "processor", "instruction_set", "gpu", "threads")


def read_lock(out: AnyPath) -> dict[str, Any]:
    """Read ``lock.json`` of a folder; return nothing where there is none."""
    path = out / LOCK
    if not path.exists():
        return {}
    try:
        lock = json.loads(path.read_text())
    except (ValueError, RecursionError):
        lock = None
    if not isinstance(lock, dict) or not isinstance(lock.get("runs", {}), dict):
        raise DamagedFileError(f"{path} is no record of a table; delete it and run again")
    return lock


def join_commands(lock: dict[str, Any], command: str) -> str:
    """Join the commands that made parts of a table with the current one."""
    before = [own for own in str(lock.get("command", "")).split(_AND) if own]
    return _AND.join(dict.fromkeys([*before, command]))


def write_lock(
    out: AnyPath, folders: list[AnyPath], command: str, identity: dict[str, Any]
) -> None:
    """Write ``lock.json`` of a table: what it is, the command that makes it, and on what."""
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    record = {
        "version": 1,
        "command": command,
        **identity,
        # That wrote this file last, and may have found everything done.
        "program": {
            "git_revision": git_revision(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": {**machine(), "gpus": gpus},
            "packages": dict(sorted(packages.items(), key=lambda own: own[0].lower())),
        },
        # Those that computed the numbers, maybe on other machines.
        "trials": {folder.name: _list_provenance(folder) for folder in folders},
    }
    atomic_write(out / LOCK, f"{json.dumps(record, indent=1, default=str)}\n".encode())


def _list_provenance(folder: AnyPath) -> list[dict[str, Any]]:
    """List the distinct provenances of the trials of a folder, with their counts."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in read_table(folder, "trials", columns=_PROVENANCE).to_pylist():
        own = {name: row.get(name) for name in _PROVENANCE}
        if isinstance(own["versions"], str):
            own["versions"] = json.loads(own["versions"])
        kind = kinds.setdefault(json.dumps(own, sort_keys=True), {**own, "trials": 0})
        kind["trials"] += 1
    return list(kinds.values())
