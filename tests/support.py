"""What several tests need: the command line, quick settings, rows, a small network."""

import atexit
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest
import torch

from tune_calib.cli import main
from tune_calib.files.paths import parse_path
from tune_calib.results.columns import TableName
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import LADDERS
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning import plan as driver
from tune_calib.tuning.folder import Provenance, RunLocation
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.work import execution as chosen
from tune_calib.tuning.work import local

CPU = torch.device("cpu")


def small_spec(**head) -> TrialSpec:
    slots = {"network": {"backbone": "small_cnn", "epochs": 1, "augment": "none"}}
    if head:
        slots["head"] = {"epochs": 3, "augment": "none", **head}
    return TrialSpec.build(**slots)


EVERY_CASE = False
"""Whether sampled tests have all of their cases; false in the fast suite."""


def sample(cases: Iterable, few: int) -> list:
    """Choose ``few`` cases of ``parametrize`` for the fast suite; the others are marked slow.

    The first case is chosen, and others evenly behind it. A tuple holds a value for each parameter:
    if the value of a single parameter is a tuple, write ``(value,)``, or ``zip(values)`` for all.
    """
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    few = min(few, len(rows))
    chosen = {number * len(rows) // few for number in range(few)}
    params = []
    for place, row in enumerate(rows):
        if place in chosen:
            params.append(pytest.param(*row))
        elif EVERY_CASE:  # pytest takes seconds to build thousands of tests that it leaves out
            params.append(pytest.param(*row, marks=pytest.mark.slow))
    return params


SETTINGS = {"network.augment": "none", "head.augment": "none", "data.train_fraction": 0.25}
QUICK = ["--epochs", "2", "--head-epochs", "2"]
QUICK += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
# How long a trial took, on what, and in whose company, is not its result.
CIRCUMSTANCES = ["wall_s", "own_s", "bank_s", "peak_memory_bytes", "actor_resets", "population"]


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tune_calib.cli", *map(str, arguments)]


def cli(*arguments, **options):
    """Run the command line in a process of its own."""
    return subprocess.run(
        command_line(*arguments), capture_output=True, text=True, check=False, **options
    )


_on_ray: list[bool] = [False]


@contextlib.contextmanager
def on_ray(uses_ray: bool):
    """Let runs that name no address use Ray within the block, as a user's do, or this process."""
    _on_ray.append(uses_ray)
    try:
        yield
    finally:
        _on_ray.pop()


@contextlib.contextmanager
def open_executor(location, *further, **named):
    """In the place of the drivers' own ``open_executor``."""
    with contextlib.ExitStack() as stack:
        if location.address is None and not _on_ray[-1]:
            location = replace(location, address=IN_PROCESS)
            # Each process takes seconds to start.
            stack.enter_context(mock.patch.object(local, "count_processes", return_value=0))
        yield stack.enter_context(chosen.open_executor(location, *further, **named))


@contextlib.contextmanager
def choosing_executors():
    """Let the drivers of this process heed ``on_ray`` within the block."""
    with mock.patch.object(driver, "open_executor", open_executor):
        yield


@cache
def shared_ray() -> contextlib.ExitStack:
    """Start a Ray for all the runs of this process: each start takes some seconds."""
    from tune_calib.tuning.ray.session import ray_session

    session = contextlib.ExitStack()
    session.enter_context(ray_session(None))
    atexit.register(session.close)
    return session


def here(*arguments) -> subprocess.CompletedProcess:
    """Run the command line in this process: as ``cli``, without what it costs to start one."""
    words = list(map(str, arguments))
    runs = {*words[:1]} & {"ablate", "compare", "search", "evaluate", "run", "resume"}
    if runs and _on_ray[-1] and "--address" not in words:
        shared_ray()
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["tune-calib", *words]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,
    ):
        main(words)
    code = ended.value.code or 0
    return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())


def rows(out: Path, *without: str, table: TableName = "trials") -> list[dict]:
    """Result rows but for their provenance, and for further columns, in one order."""
    content = read_table(out, table)
    dropped = [name for name in (*CIRCUMSTANCES, *without) if name in content.column_names]
    return sorted(content.drop_columns(dropped).to_pylist(), key=repr)


def run_of(out: Path, store) -> dict:
    return Provenance(out=str(out), store=str(store.root), git_revision=None).plain()


def drive(actor) -> dict:
    """Step a trainable to its end; what it reports last."""
    result = {}
    while not result.get("done"):
        result = actor.step()
    return result


DAMAGE = {
    "absent": None,
    "empty": b"",
    "truncated": lambda content: content[: len(content) // 2],
    "binary": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "foreign": b'{"version": 1, "name": "x"}',
    "another type": lambda content: json.dumps(
        {k: [v] if isinstance(v, str) else str(v) for k, v in json.loads(content).items()}
    ).encode(),
}  # fmt: skip


def damaged(path: Path, how: str) -> None:
    damage = DAMAGE[how]
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage if isinstance(damage, bytes) else damage(content))


def job_in(out, overrides=None, seeds=1) -> LadderRun:
    quick = {"network": {"epochs": 1, "augment": "none"}, "head": {"epochs": 1}}
    location = RunLocation(
        parse_path(str(out)), parse_path(str(out)) / "store", command="tune-calib ablate mac_cal"
    )
    return LadderRun(
        ladder=LADDERS["mac_cal"],
        resolved=ResolvedRequest(overrides or quick, Seeds.count(seeds, None, None)).with_recipe(),
        location=location,
    )


class Reader(HTMLParser):
    """Every tag with its attributes, and whether each tag is closed where it must be."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]
