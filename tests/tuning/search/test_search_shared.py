"""Searches whose trials several processes share by files, without Ray."""

import contextlib
import os
import subprocess
import sys
import time
from multiprocessing import Pipe

import psutil
import pytest

from tests.support import QUICK, here, rows
from tune_calib.errors import RefusedError
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import JOBS, Provenance
from tune_calib.tuning.work import shared
from tune_calib.tuning.work.executor import OVER
from tune_calib.tuning.work.shared import JobFiles, SharedExecutor, name_of

COMMAND = ["search", "mac_cal", *QUICK[:8], "--trials", 12, "--population", 2, "--at-once", 4]
PROGRAM = """
import sys
from tune_calib.cli import main
from tune_calib.tuning.work import shared
shared.TOUCH_S, shared.EXPIRED_S = 1, 8
main(sys.argv[1:])
"""


def config_of(name):
    job = {"name": name, "title": name, "kind": "head", "weight": 1, "trials": [{}]}
    return {"job": job, "run": {}}


class Jobs:
    """A source of jobs by name."""

    at_once = 2

    def __init__(self, *names):
        self.names, self.running, self.ended = list(names), {}, []

    def suggest(self, trial_id):
        if not self.names:
            return OVER
        self.running[trial_id] = self.names.pop(0)
        return config_of(self.running[trial_id])

    def end(self, trial_id):
        self.ended.append(self.running.pop(trial_id))


class Instant:
    """In the place of a process: a job ends as it begins."""

    has_ended, reply = False, {"done": True, "status": "done"}

    def __init__(self, variables):
        self.connection, self.driver = Pipe()

    def begin(self, config):
        self.driver.send(self.reply)

    def read(self):
        message = self.connection.recv()
        if isinstance(message, RefusedError):
            raise message
        return message

    def close(self):
        self.connection.close()


@pytest.fixture
def executor(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "JobProcess", Instant)
    monkeypatch.setattr(shared, "POLL_S", 0.01)
    return SharedExecutor(Provenance(str(tmp_path), "store", git_revision=None), Context(), {})


def make_old(path):
    os.utime(path, (1, 1))


def test_a_job_is_leased_once_and_again_when_its_lease_has_expired(tmp_path):
    first, second = JobFiles(tmp_path), JobFiles(tmp_path)
    first.publish(config_of("heads-1.5"))
    make_old(first.folder / "heads-1.5.job")
    lease = first.take()
    assert second.take() is None
    assert second.find_expired() == []
    make_old(lease)
    assert second.find_expired() == [lease]
    second.give_back(lease)
    again = second.take()
    assert name_of(again) == "heads-1.5"
    first.end(lease, "late")  # of the process that was believed dead
    assert list(first.collect_ends()) == []
    second.end(again, {"done": True})
    assert list(first.collect_ends()) == [("heads-1.5", {"report": {"done": True}})]
    assert list(first.collect_ends()) == []


def test_a_driver_finishes_jobs_of_lost_processes_and_of_earlier_drivers(executor):
    files, source = executor.files, Jobs("a", "b", "c")
    files.publish(config_of("a"))
    make_old(files.take())
    files.publish(config_of("b"))
    (files.folder / "z.end").write_text("{}")
    successor = SharedExecutor(executor.provenance, executor.context, {})
    assert [path.suffix for path in files.folder.iterdir()] == [".lease"]
    assert successor.run(source) == {}
    assert sorted(source.ended) == ["a", "b", "c"]
    assert not files.folder.exists()


def test_a_job_with_which_processes_are_lost_again_and_again_crashes(executor, monkeypatch):
    monkeypatch.setattr(shared.JobWorker, "turn", lambda worker: make_old(worker.files.take()))
    source = Jobs("a")
    assert executor.run(source) == {"a": "3 processes were lost with it"}
    assert source.ended == ["a"]


def test_crashes_are_reported_and_a_refusal_ends_the_run(executor, monkeypatch):
    monkeypatch.setattr(Instant, "reply", "ZeroDivisionError: as it were")
    assert executor.run(Jobs("a")) == {"a": "ZeroDivisionError: as it were"}
    monkeypatch.setattr(Instant, "reply", RefusedError("the disk is full"))
    with pytest.raises(RefusedError, match="the disk is full"):
        executor.run(Jobs("b"))
    executor.files.publish(config_of("c"))
    lease, refused = executor.files.take(), RefusedError("another copy of the data")
    monkeypatch.setattr(shared.JobWorker, "turn", lambda worker: worker.files.end(lease, refused))
    with pytest.raises(RefusedError, match="another copy"):  # on another machine
        executor.run(Jobs("c"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "needs the number of processes that you start as --at-once"),
        (["--at-once", 2, "--address", "auto"], "without Ray, so --address does not apply"),
        (["--at-once", 2, "--retry", "crashed"], "run tune-calib resume with --retry first"),
        (["--at-once", 2, "--out", "s3://bucket/run"], "s3://bucket/run is a URL"),
    ],
)
def test_workers_of_which_nothing_could_come_are_refused(words, expected, refusal):
    assert expected in refusal("search", "ls", "--worker", *words)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("search") / "whole"
    done = here(*COMMAND, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def start(out):
    words = [*map(str, COMMAND), "--worker", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE, text=True
    )


def wait_until(is_reached):
    deadline = time.monotonic() + 200
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(process):
    """List the processes that train for another one; it also starts some that end at once."""
    training = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("serve(" in word for word in child.cmdline()):
                training.append(child)
    return training


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("lost", ["nobody", "driver", "worker"])
def test_four_processes_search_as_one_does_whichever_is_killed(undisturbed, lost, tmp_path):
    out = tmp_path / "out"
    driver = start(out)
    wait_until(lambda: any(out.glob("trials/heads-*")))
    (child,) = children(driver)
    child.suspend()  # so that there are jobs for others
    workers = [start(out) for _ in range(3)]
    wait_until(lambda: any(map(children, workers)))
    at_work = next(filter(children, workers))
    killed = {"nobody": [], "driver": [driver], "worker": [at_work]}[lost]
    for process in killed:
        for member in (psutil.Process(process.pid), *children(process)):
            member.kill()
        process.communicate()
    assert len(rows(out)) < 13
    if lost != "driver":
        child.resume()
    for process in {driver, *workers}.difference(killed):
        _, messages = process.communicate()
        assert process.returncode == 0, messages
    assert rows(out, "sweep") == rows(undisturbed, "sweep")
    assert not (out / JOBS).exists()
