"""What someone else needs to make a table of a paper again: command, versions, machine, commit."""

import importlib.metadata
import json
import platform
from typing import Any

import torch

from tune_calib.engine.machine import machine
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import atomic_write, read_table
from tune_calib.tuning.ray.rows import git_revision

LOCK = "lock.json"
_AND = " && "
_OF_TRIALS = ("git_revision", "versions", "processor", "instruction_set", "gpu", "threads")


def read_lock(out: AnyPath) -> dict[str, Any]:
    """What ``lock.json`` of a folder says; nothing where there is none.

    Raises:
        DamagedFileError: it is no record.
    """
    path = out / LOCK
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("runs", {}), dict):
        raise DamagedFileError(f"{path} is no record of a table; delete it and run again")
    return found


def joined(lock: dict[str, Any], command: str) -> str:
    """The commands that make all of a table, of which the last ones need not ask for all of it.

    Args:
        lock: what stands there.
        command: that does some of it now.
    """
    before = [own for own in str(lock.get("command", "")).split(_AND) if own]
    return _AND.join(dict.fromkeys([*before, command]))


def write_lock(out: AnyPath, folders: list[AnyPath], command: str, asked: dict[str, Any]) -> None:
    """Write ``lock.json``.

    Args:
        out: folder of the table.
        folders: of its results, whose trials may be of other sessions and machines.
        command: that makes all of it.
        asked: name, scale, and the run of each folder.
    """
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    record = {
        "version": 1,
        "command": command,
        **asked,
        # Of who wrote this last, who may have found everything done.
        "program": {
            "git_revision": git_revision(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": {**machine(), "gpus": gpus},
            "packages": dict(sorted(packages.items(), key=lambda own: own[0].lower())),
        },
        # Of those that computed the numbers.
        "trials": {folder.name: _circumstances(folder) for folder in folders},
    }
    atomic_write(out / LOCK, f"{json.dumps(record, indent=1, default=str)}\n".encode())


def _circumstances(folder: AnyPath) -> list[dict[str, Any]]:
    """Each kind of circumstances under which trials ran, and how many did."""
    rows = read_table(folder, "trials", columns=_OF_TRIALS).to_pylist()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        own = {name: row.get(name) for name in _OF_TRIALS}
        if isinstance(own["versions"], str):
            own["versions"] = json.loads(own["versions"])
        kind = found.setdefault(json.dumps(own, sort_keys=True), {**own, "trials": 0})
        kind["trials"] += 1
    return list(found.values())
