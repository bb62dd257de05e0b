"""Trials in the driver's own process: no Ray, the same care for what crashes or is stopped."""

import json
import signal
import subprocess
import sys
import time

import pytest

import tune_calib
from tests import support
from tests.support import QUICK, here, on_ray, rows
from tune_calib.engine import artifacts
from tune_calib.errors import RefusedError
from tune_calib.spec.names import CRASHES
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.work import local
from tune_calib.tuning.work.local import JobProcess
from tune_calib.tuning.work.workers import KINDS

COMMAND = ["compare", "ce", "retrain", *QUICK, "--address", "none"]
PROGRAM = """
import sys
import tune_calib
from tune_calib import errors, plugins
assert not {"torch", "sklearn", "ray", "pandas"} & sys.modules.keys()
tune_calib.TemperatureScaling, tune_calib.RetrainedHead
from tune_calib.spec.backbones import BACKBONES
BACKBONES["resnet8"]
tune_calib.calibration_report([[2., 0.], [1., 3.]], [0, 1], resamples=5).figure()
assert not {"ray", "optuna", "timm"} & sys.modules.keys()
from analysis.ladder import files
from tune_calib.cli import main
files.in_order = lambda registry: []
try:
    main(sys.argv[1:])
finally:
    print("ray" in sys.modules, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_process_imports_no_more_than_it_needs_and_a_run_without_ray_not_ray(tmp_path):
    out = tmp_path / "out"
    command = ["compare", "ce", "--epochs", 1, "--address", "none", "--out", out]
    words = [str(word) for word in command]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "False"
    assert "one trial after the other in this process" in " ".join(done.stderr.split())
    assert "Ray startup" not in done.stderr
    assert "networks and heads: 1 of 1 trials ended (1 done)" in done.stderr
    assert [row["status"] for row in rows(out)] == ["done"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["search", "ls", "--at-once", 2, "--gpus", 1], "`at_once` 2 needs Ray"),
        (["ablate", "mac_cal", "--gpus", "1/2"], "set --gpus to 1 instead of 0.5"),
        (["compare", "ce", "--portable"], "network.portable needs ATEN_CPU"),
    ],
)
def test_options_that_need_ray_are_refused_in_one_line(words, expected, tmp_path, refusal):
    out = tmp_path / "out"
    message = refusal(*words, "--address", "none", "--out", out)
    assert expected.replace("`at_once`", "--at-once") in message
    assert not out.exists()


def wrap_steps(monkeypatch, wrapper):
    """Let ``wrapper(step, worker)`` take each step of a worker of any kind."""
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "step", wrapper_of(wrapper, kind.step))


def wrapper_of(wrapper, step):
    return lambda worker: wrapper(step, worker)


@pytest.fixture
def fails(monkeypatch):
    """Let a step of a trial raise; count the steps."""
    count = []

    def choose(number, error):
        def fail(step, worker):
            count.append(1)
            if len(count) == number:
                raise error
            return step(worker)

        wrap_steps(monkeypatch, fail)
        return count

    return choose


def test_a_crashed_trial_is_reported_and_the_others_continue(fails, tmp_path):
    out = tmp_path / "out"
    # Two steps and a last one of each network, in the order of the plan.
    fails(2, ZeroDivisionError("as it were\n    For further information visit a page"))
    command = ["compare", "ce", "ls", *QUICK[:2], "--address", "none", "--out", out]
    done = here(*command)
    assert done.returncode == 1
    assert "crashed; first: ZeroDivisionError: as it were\n" in done.stderr
    assert "1 crashed, 1 done" in done.stderr
    assert "Traceback" in (out / CRASHES).read_text()
    assert [row["network_method"] for row in rows(out)] == ["ls"]
    # It goes on from its last epoch, whose lock is free.
    again = here(*command)
    assert again.returncode == 0, again.stderr
    assert sorted(row["network_method"] for row in rows(out)) == ["ce", "ls"]


@pytest.mark.slow
def test_ctrl_c_ends_a_run_and_the_same_command_resumes_it(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "CHECKPOINT_S", 0)
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert here(*COMMAND, "--out", whole).returncode == 0
    steps = fails(2, KeyboardInterrupt())
    stopped = here(*COMMAND, "--out", out)
    assert stopped.returncode == 128 + signal.SIGINT, stopped.stderr
    assert rows(out) == []
    assert here(*COMMAND, "--out", out).returncode == 0
    # Of the network one epoch was left, then its end, and the head in one step.
    assert len(steps) == 2 + 3
    assert rows(out) == rows(whole)


def test_no_trial_starts_after_the_time_limit_and_the_same_command_continues(tmp_path, monkeypatch):
    out, passed, now = tmp_path / "out", [0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600 * passed[0])

    def take_two_hours(step, worker):
        passed[0] += 2
        return step(worker)

    wrap_steps(monkeypatch, take_two_hours)
    command = ["compare", "ce", "ls", *QUICK[:2], "--address", "none", "--out", out]
    stopped = here(*command, "--max-hours", 1)
    assert stopped.returncode == 3, stopped.stderr
    # The network that was running finished.
    assert [row["network_method"] for row in rows(out)] == ["ce"]
    assert (
        "the time limit of 1 h is over: 1 of 2 trials and 0 extra evaluations left; continue"
        in stopped.stderr
    )
    assert f"--out {out} --max-hours 1\n" in stopped.stderr
    with pytest.warns(UserWarning, match="0 extra evaluations left; the same call continues"):
        tune_calib.compare(["ce", "ls"], epochs=2, address="none", out=out, max_hours=1e-9)
    assert here(*command, "--max-hours", 9).returncode == 0
    assert sorted(row["network_method"] for row in rows(out)) == ["ce", "ls"]


def test_watchers_see_the_running_trial(tmp_path, monkeypatch):
    seen, update = [], Tracker.update

    def note(tracker, events):
        update(tracker, events)
        running = tracker.record().running.values()
        seen.extend((job.title, job.event.description) for job in running if job.event.completed)

    monkeypatch.setattr(Tracker, "update", note)
    assert here(*COMMAND, "--out", tmp_path / "out").returncode == 0
    assert ("network 1 of 1: ce, seed 0", "epoch") in seen


@pytest.mark.slow
def test_a_killed_process_of_a_search_is_a_crash_of_its_suggestions(tmp_path, monkeypatch):
    out, begin, begun = tmp_path / "out", JobProcess.begin, []

    def kill_second(process, config):
        begun.append(process)
        begin(process, config)
        if len(begun) == 2:
            process._process.kill()

    monkeypatch.setattr(JobProcess, "begin", kill_second)
    command = ["search", "mac_cal", "--trials", 3, "--population", 1, "--at-once", 2, *QUICK]
    done = here(*command, "--address", "none", "--out", out)
    assert done.returncode == 1, done.stderr
    assert "1 crashed, 2 done" in done.stderr
    assert "its process ended with code -9" in done.stderr
    again = here(*command, "--retry", "crashed", "--out", out)
    assert again.returncode == 0, again.stderr
    assert len(rows(out)) == 4


@pytest.mark.slow
def test_a_search_of_networks_is_the_same_in_one_process_and_in_two(tmp_path, monkeypatch):
    command = ["search", "ls", "--trials", 13, "--epochs", 1, *QUICK[4:], "--at-once", 2]
    command += ["--metric", "nll", "--address", "none"]
    assert here(*command, "--out", tmp_path / "two").returncode == 0
    monkeypatch.setattr(local, "count_processes", lambda source: 0)
    assert here(*command, "--out", tmp_path / "one").returncode == 0
    assert len(rows(tmp_path / "one")) == 14
    assert rows(tmp_path / "one", "sweep") == rows(tmp_path / "two", "sweep")


@pytest.mark.slow
def test_a_suggestion_that_crashes_is_one_of_the_search(fails, tmp_path):
    out = tmp_path / "out"
    command = ["search", "mac_cal", "--trials", 2, "--population", 1, *QUICK]
    command += ["--address", "none", "--out", out]
    fails(4, ZeroDivisionError("as it were"))  # the baseline takes three steps
    done = here(*command)
    assert done.returncode == 1
    assert "1 crashed, 1 done" in done.stderr
    again = here(*command, "--retry", "crashed")
    assert again.returncode == 0, again.stderr
    assert len(rows(out)) == 3


@pytest.mark.slow
def test_a_full_disk_in_a_search_is_no_crash_of_a_suggestion(fails, tmp_path):
    out = tmp_path / "out"
    command = ["search", "mac_cal", "--trials", 2, "--population", 1, *QUICK, "--out", out]
    fails(4, RefusedError("cannot write heads.parquet: No space left on device"))
    full = here(*command, "--address", "none")
    assert full.returncode == 2
    assert full.stderr.strip().endswith("cannot write heads.parquet: No space left on device")
    again = here("resume", out)
    assert again.returncode == 0, again.stderr
    assert "all 2 planned suggestions ended" in again.stdout


@pytest.mark.slow
def test_an_experiment_file_and_its_resumed_search_run_without_ray(tmp_path, monkeypatch):
    from tune_calib.tuning.ray import session

    monkeypatch.setattr(session, "ray_session", lambda *_: pytest.fail("Ray was started"))
    monkeypatch.setattr(support, "shared_ray", lambda: None)
    file, out = tmp_path / "experiment.yaml", tmp_path / "out"
    quick = {"network": {"epochs": 1, "augment": "none"}, "head": {"epochs": 1, "augment": "none"}}
    entries = {
        "a": {"methods": ["ce", "retrain"]},
        "b": {"methods": ["mac_cal"], "search": {"trials": 2, "population": 2}},
    }
    content = {"out": str(out), "address": "none", "set": quick, "entries": entries}
    file.write_text(json.dumps(content))
    with on_ray(True):
        ran = tune_calib.run(file)
        assert list(ran) == ["a-digits", "b-mac_cal-digits"]
        longer = here("resume", out / "b-mac_cal-digits", "--trials", 3)
    assert longer.returncode == 0, longer.stderr
    assert len(rows(out / "a-digits")) == 2
    assert len(rows(out / "b-mac_cal-digits")) == 4
