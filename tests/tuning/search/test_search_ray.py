"""Searches end to end: repeatable, resumable, shut off from the test split."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support import QUICK, cli, command_line, here, rows
from tune_calib.files.documents import seal

# Each test starts Ray several times; on two busy cores that takes its time.
pytestmark = pytest.mark.timeout(300)

HEADS = ["search", "mac_cal", *QUICK[:8], "--trials", 16, "--population", 2, "--at-once", 2]


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("trials/*.parquet")}


@pytest.fixture(scope="module")
def finished_search(tmp_path_factory):
    """An uninterrupted search of heads, and what it printed."""
    out = tmp_path_factory.mktemp("searches") / "whole"
    done = here(*HEADS, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def started(out: Path, store: Path, *further: object) -> subprocess.Popen:
    """The same search in a process of its own, some result files later."""
    command = command_line(*HEADS[:-2], *further, "--out", out, "--store", store)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while len(list(out.glob("trials/heads-*.parquet"))) == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_a_search_of_heads_prints_its_choice_and_its_counts(finished_search):
    out, printed = finished_search
    assert "Complete: all 16 planned suggestions ended" in " ".join(printed.split())
    assert "chosen: trial" in printed
    assert len(rows(out)) == 17
    assert not any(name.startswith("test/") for name in rows(out)[0])
    manifest = json.loads((out / "search.json").read_text())
    assert manifest["rule"] == "best ECE on select with at most 1 point of accuracy lost"


def test_the_outcome_of_a_search_is_stored_and_rebuilt_if_lost(finished_search):
    out, _ = finished_search
    stored = (out / "outcome.json").read_text()
    outcome = json.loads(stored)
    assert [entry["number"] for entry in outcome["suggestions"]] == list(range(16))
    assert outcome["importance"]["statement"].startswith("16 suggestions are done")
    (out / "outcome.json").unlink()
    done = here("report", out)
    assert done.returncode == 0, done.stderr
    assert "all 16 planned suggestions ended" in done.stdout
    assert (out / "outcome.json").read_text() == stored
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_the_same_command_in_a_fresh_process_gives_the_same_numbers(finished_search, tmp_path):
    out, printed = finished_search
    again = cli(*HEADS, "--out", tmp_path / "again", "--store", tmp_path / "another-store")
    assert again.returncode == 0, again.stderr
    assert rows(tmp_path / "again", "sweep") == rows(out, "sweep")
    assert printed.splitlines()[:6] == again.stdout.splitlines()[:6]


def test_the_same_command_on_the_same_folder_does_nothing_and_resume_neither(finished_search):
    out, printed = finished_search
    times = stamps(out)
    for command in ([*HEADS, "--out", out], ["resume", out]):
        again = here(*command)
        assert again.returncode == 0, again.stderr
        assert stamps(out) == times
        assert str(out / "report.html") in printed
        assert again.stdout == printed


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_and_resumed_search_is_the_same(finished_search, tmp_path, number):
    reference, _ = finished_search
    out = tmp_path / "crashed"
    process = started(out, reference / "store", "--address", "none")
    sent = time.monotonic()
    process.send_signal(number)
    _, output = process.communicate()
    assert time.monotonic() - sent < 20
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert f"continue with: tune-calib resume {out}" in output.splitlines()[-1]
        assert "Traceback" not in output
    left = stamps(out)
    assert 0 < len(rows(out)) < 17
    again = here("resume", out)
    assert again.returncode == 0, again.stderr
    assert {path: stamp for path, stamp in stamps(out).items() if path in left} == left
    assert rows(out, "sweep") == rows(reference, "sweep")


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_actor_costs_nothing(finished_search, tmp_path):
    reference, _ = finished_search
    out = tmp_path / "killed"
    process = started(out, reference / "store", "--at-once", 2)
    actors = []
    while not actors and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ResourceTrainable" in " ".join(child.cmdline()):
                    actors.append(child)
    assert actors
    os.kill(actors[0].pid, signal.SIGKILL)
    _, output = process.communicate()
    assert process.returncode == 0, output
    assert rows(out, "sweep") == rows(reference, "sweep")


def test_the_test_split_is_read_once_for_the_choice(finished_search, tmp_path):
    reference, _ = finished_search
    out = shutil.copytree(reference, tmp_path / "chosen")
    command = [*HEADS, "--out", out]
    first = here("evaluate", out, "--seeds", 1)
    assert first.returncode == 0, first.stderr
    assert "\nchosen" in first.stdout
    assert "optimism" in first.stdout
    seeds = {row["network_seed"] for row in rows(out / "evaluation")}
    assert seeds == {1}, "fresh seeds"
    assert all(row["test/ece"] is not None for row in rows(out / "evaluation"))
    again = here("evaluate", out, "--seeds", 2)
    assert again.returncode == 2
    assert "test was read once, with 1 fresh seed" in again.stderr
    extended = here("evaluate", out, "--seeds", 2, "--extend")
    assert extended.returncode == 0, extended.stderr
    assert {row["network_seed"] for row in rows(out / "evaluation")} == {1, 2}
    note = "test was read 2 times: with 1 fresh seed, then 2 fresh seeds"
    assert note in extended.stdout
    assert note in (out / "evaluation" / "report.html").read_text()
    closed = here(*command)
    assert closed.returncode == 2
    assert "evaluated on test" in closed.stderr
    choice = json.loads((out / "evaluated.json").read_text())
    (out / "evaluated.json").write_bytes(seal({**choice, "trial": 99}))
    refused = here("evaluate", out, "--seeds", 1)
    assert refused.returncode == 2
    assert "test is read only once" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


NETWORKS = ["search", "ls", "--epochs", 3, "--set", "network.augment=none", "--metric", "nll"]


@pytest.mark.slow
def test_a_search_of_networks_one_at_a_time_repeats_and_resumes(tmp_path):
    command = [*NETWORKS, "--trials", 4, "--at-once", 1]
    for name in ("first", "second"):
        done = here(*command, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "first", "sweep") == rows(tmp_path / "second", "sweep")
    third = tmp_path / "third"
    text = command_line(*command, "--out", third)
    process = subprocess.Popen(text, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(third.glob("trials/*.parquet"))) < 3 and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert here("resume", third).returncode == 0
    assert rows(third, "sweep") == rows(tmp_path / "first", "sweep")


def test_a_diverging_baseline_ends_the_search_in_one_line(tmp_path):
    setting = ["--set", "network.clip_grad_norm=null", "--at-once", 2]
    command = ["search", "brier", "--epochs", 1, *setting, "--trials", 2]
    done = here(*command, "--set", "network.lr=1e30", "--out", tmp_path / "all")
    assert done.returncode == 2
    assert "the baseline network diverged" in done.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_diverging_networks_fail_in_the_study_and_do_not_end_the_search(tmp_path):
    setting = ["--set", "network.clip_grad_norm=null", "--set", "network.lambda_bdc=1e38"]
    command = ["search", "cpc", "--epochs", 1, *setting, "--trials", 3]
    done = here(*command, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 suggestions diverged" in done.stdout
    assert "no suggestion keeps the accuracy" in done.stdout
    statuses = {row["rung_label"]: row["status"] for row in rows(tmp_path)}
    assert statuses.pop("baseline") == "done"
    assert set(statuses.values()) == {"diverged"}
