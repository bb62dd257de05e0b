"""Warn of a run that goes on elsewhere than it began, before it goes on."""

import json
from collections.abc import Mapping
from typing import Any

from tune_calib.console import echo
from tune_calib.engine.machine import machine
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.names import IN_PROCESS

COLUMNS = ("processor", "instruction_set", "threads", "device", "network", "head_method")


def warn_of_other_machine(out: AnyPath, address: str | None) -> None:
    """Warn on stderr if the rows of a folder were computed on another kind of machine."""
    rows = read_table(out, "trials", columns=COLUMNS).to_pylist()
    trained = [row for row in rows if row["device"] == "cpu" and not _slot(row).get("portable")]
    networks = [row for row in trained if row["head_method"] is None and row["threads"] is not None]
    threads = {row["threads"] for row in networks if row["threads"] != _threads(row)}
    if threads:
        counts = ", ".join(map(str, sorted(threads)))
        _warn(f"{out} holds networks that an earlier version trained on {counts} threads; new ones")
    before = {_kind(row) for row in trained if row["processor"] is not None}
    here = {_kind(each) for each in list_machines(address)} if before else set()
    if before - here:
        kinds = " and ".join(sorted(before - here))
        _warn(f"{out} holds trials of {kinds}, and this is {' and '.join(sorted(here))}; new ones")


def list_machines(address: str | None) -> list[dict[str, str | None]]:
    """Describe each living node of the cluster, or this machine."""
    if address in (None, IN_PROCESS):
        return [machine()]

    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    describe: Any = ray.remote(num_cpus=0)(machine)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    where = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    machines: list[dict[str, str | None]] = ray.get(
        [describe.options(scheduling_strategy=each).remote() for each in where]
    )
    return machines


def _kind(about: Mapping[str, Any]) -> str:
    return f"{about['processor']} ({about['instruction_set']})"


def _threads(row: Mapping[str, Any]) -> int:
    return int(_slot(row).get("threads", 1))


def _slot(row: Mapping[str, Any]) -> dict[str, Any]:
    slot: dict[str, Any] = json.loads(row["network"])
    return slot


def _warn(what: str) -> None:
    echo(
        f"{what} differ from them by about a point beside what the seeds do; network.portable "
        "makes them equal",
        err=True,
    )
