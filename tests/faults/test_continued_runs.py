"""Searches, ladders and experiment files that are killed, damaged or lose rows, and go on."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.faults.common import finish, spawn, wait_until
from tests.support import QUICK, command_line, here, rows

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

TABLES = ("trials", "curves", "bins")
NETWORK = ["--epochs", 3, "--head-epochs", 4, "--set", "network.augment=none"]
NETWORK += ["--set", "head.augment=none"]
SEARCH = ["search", "mac_cal", "--trials", 12, "--population", 4, "--guard", 0.5, *NETWORK]
LADDER = ["compare", "ce", "retrain", "mac_cal", "--seeds", 2, *NETWORK]
FILE = {
    "address": "none",
    "set": {
        "network": {"epochs": 3, "augment": "none"}, "head": {"epochs": 4, "augment": "none"},
    },
    "entries": {
        "a": {"methods": ["ce", "retrain"], "seeds": 2},
        "b": {"methods": ["mac_cal"], "search": {"trials": 8, "population": 4, "guard": 0.5}},
    },
}  # fmt: skip
KINDS = ("search", "ladder", "file")


def command(kind: str, out: Path, store: Path) -> list[object]:
    """Return the command of a kind of run in a folder."""
    if kind == "file":
        file = out.with_suffix(".yaml")
        file.write_text(json.dumps({"out": str(out), "store": str(store), **FILE}))
        return ["run", file]
    words = SEARCH if kind == "search" else LADDER
    return [*words, "--address", "none", "--out", out, "--store", store]


def result(out: Path) -> dict[str, object]:
    """Rows of all tables by folder, and the choice of each search."""
    found: dict[str, object] = {}
    for trials in sorted(out.rglob("trials")):
        folder = trials.parent
        name = str(folder.relative_to(out))
        for table in TABLES:
            found[f"{name} {table}"] = rows(folder, "sweep", "git_revision", table=table)
        if (folder / "outcome.json").exists():
            outcome = json.loads((folder / "outcome.json").read_text())
            names = ("chosen", "front", "suggestions", "baseline", "importance")
            found[f"{name} choice"] = {key: outcome[key] for key in names}
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "store"


@pytest.fixture(scope="module")
def runs(store, tmp_path_factory):
    """The undisturbed runs: folder, result and seconds by kind."""
    found = {}
    for kind in KINDS:
        out, began = tmp_path_factory.mktemp(kind) / "out", time.monotonic()
        ended = here(*command(kind, out, store))
        assert ended.returncode == 0, ended.stderr
        found[kind] = out, result(out), time.monotonic() - began
    choices = [value["chosen"] for name, value in found["search"][1].items() if "choice" in name]
    assert choices
    assert None not in choices
    return found


def kill(words: list[object], after_s: float) -> None:
    """Run a command in a forked process, and kill it after some seconds unless it has ended."""
    child = os.fork()
    if child == 0:
        try:
            here(*words)
        finally:
            os._exit(0)
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(kind, number, runs, store, tmp_path):
    chance = random.Random(f"{kind} {number}")
    words = command(kind, tmp_path / "out", store)
    for _ in range(2):
        kill(words, chance.uniform(0.2, 0.9) * runs[kind][2])
    ended = here(*words)
    assert ended.returncode == 0, ended.stderr
    assert result(tmp_path / "out") == runs[kind][1]


def files_of(out: Path, table: str) -> list[Path]:
    return sorted(out.rglob(f"{table}/*.parquet"))


def delete(out: Path, chance: random.Random) -> list[Path]:
    files = files_of(out, "trials")
    victims = chance.sample(files, chance.randint(1, max(1, len(files) // 2)))
    for path in victims:
        path.unlink()
    return []


def damage(out: Path, chance: random.Random) -> list[Path]:
    path = chance.choice(files_of(out, chance.choice(TABLES)))
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return [path]


def lose_manifest(out: Path, chance: random.Random) -> list[Path]:
    names = ("sweep.json", "search.json", "outcome.json")
    chance.choice([path for name in names for path in sorted(out.rglob(name))]).unlink()
    return delete(out, chance)


def cut_journal(out: Path, chance: random.Random) -> list[Path]:
    for path in out.rglob("study.log"):
        os.truncate(path, chance.randrange(path.stat().st_size))
    return delete(out, chance)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("fault", [delete, damage, lose_manifest, cut_journal])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_lost_files_repeats_them(kind, fault, number, runs, store, tmp_path):
    chance, out = random.Random(f"{kind} {fault.__name__} {number}"), tmp_path / "out"
    words = command(kind, out, store)
    shutil.copytree(runs[kind][0], out)
    for path in out.rglob("search.json"):  # of the same search elsewhere
        path.write_text(path.read_text().replace(str(runs[kind][0]), str(out)))
    named = fault(out, chance)
    ended = here(*words)
    for path in named if ended.returncode else ():  # do what the line says
        assert ended.returncode in (1, 2), ended.stderr
        assert "Traceback" not in ended.stderr
        lines = [line for line in ended.stderr.splitlines() if str(path) in line]
        assert lines, ended.stderr
        assert "delete it" in lines[-1]
        path.unlink()
        (path.parent.parent / "trials" / path.name).unlink(missing_ok=True)
    if named:
        for path in named:
            path.unlink(missing_ok=True)
            (path.parent.parent / "trials" / path.name).unlink(missing_ok=True)
        ended = here(*words)
    assert ended.returncode == 0, ended.stderr
    assert result(out) == runs[kind][1]


@pytest.mark.parametrize("number", range(3))
def test_a_search_on_ray_that_is_killed_and_loses_rows_goes_on(number, tmp_path):
    out, complete = tmp_path / "out", tmp_path / "whole"
    words = ["search", "mac_cal", "--trials", 8, "--population", 2, *QUICK]
    words += ["--at-once", 1, "--store", tmp_path / "store"]
    code, output = finish(spawn(command_line(*words, "--out", complete)))
    assert code == 0, output
    process = spawn(command_line(*words, "--out", out))
    assert wait_until(lambda: len(files_of(out, "trials")) > 2 * number, process)
    process.kill()
    process.wait()
    time.sleep(1)
    delete(out, random.Random(number))
    code, output = finish(spawn(command_line(*words, "--out", out)))
    assert code == 0, output
    assert result(out) == result(complete)
