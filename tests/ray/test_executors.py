"""Ray and the driver's own process carry the same trials out: equal rows, to the last digit."""

import json

import pytest

import tune_calib
from tests.support import QUICK, SETTINGS, drive, here, job_in, on_ray, rows, run_of, shared_ray
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.tuning.context import Context
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

TABLES = ("trials", "curves", "bins", "intervals")
COMMANDS = {
    "comparison": ["compare", "ce", "ls", "mac_cal", "temperature", *QUICK],
    "pools": ["compare", "pool:ce:ls", "mac_cal", "pool:ce+temperature", "--seeds", 2, *QUICK],
    "search of heads": ["search", "mac_cal", "--trials", 6, *QUICK],
    "search of networks": ["search", "ls", "--trials", 2, "--at-once", 1, *QUICK],
    "closer look": ["compare", "ce", "--bootstrap", 100, *QUICK[:2]],
}


def tables(out):
    return {table: rows(out, table=table) for table in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_both_executors_give_the_same_rows(name, tmp_path):
    found = []
    for uses_ray in (True, False):
        with on_ray(uses_ray):
            done = here(*COMMANDS[name], "--out", tmp_path / str(uses_ray))
        assert done.returncode == 0, done.stderr
        found.append(tables(tmp_path / str(uses_ray)))
    assert found[0] == found[1]
    assert found[0]["trials"]


@pytest.mark.slow
@pytest.mark.parametrize("uses_ray", [False, True])
def test_reused_actors_give_the_rows_of_fresh_ones(uses_ray, tmp_path):
    run = tmp_path / "run"
    if uses_ray:
        shared_ray()
    with on_ray(uses_ray):
        assert execute_run(job_in(run), Context()).crashed == []
    assert not uses_ray or max(read_table(run, "trials")["actor_resets"].to_pylist()) > 0
    plan = make_plan(job_in(run).planned_trials, set())
    out, store = tmp_path / "fresh", Store(tmp_path / "fresh" / "store")
    for kind, trials in ((NetworkWorker, plan.networks), (HeadWorker, plan.head_batches)):
        for trial in trials:
            actor = kind({"run": run_of(out, store), "job": trial.config()})
            drive(actor)
            actor.cleanup()
    of_run = ("sweep", "ladder", "git_revision", "data_digest", "recipe")
    assert rows(out, *of_run) == rows(run, *of_run)


@pytest.mark.slow
def test_command_line_experiment_file_and_python_give_the_same_rows_on_ray_and_without(tmp_path):
    shared_ray()
    quick = {"epochs": 2, "augment": "none"}
    settings = {"data": {"train_fraction": 0.25}, "network": quick, "head": quick}
    content = {"set": settings, "entries": {"a": {"ladder": "mac_cal"}}}
    found = []
    # As a user names it: Ray by default, and ``none`` for no Ray.
    for name, address in (("ray", {}), ("none", {"address": "none"})):
        with on_ray(True):
            out = tmp_path / name
            words = [word for key, value in address.items() for word in (f"--{key}", value)]
            done = here("ablate", "mac_cal", *QUICK, *words, "--out", out / "command")
            assert done.returncode == 0, done.stderr
            asked = {"epochs": 2, "head_epochs": 2, "set": SETTINGS, **address}
            called = tune_calib.ablate("mac_cal", **asked, out=out / "called")
            file = tmp_path / f"{name}.yaml"
            file.write_text(json.dumps({**content, **address, "out": str(out / "file")}))
            listed = tune_calib.run(file)["a-digits"]
            found += [rows(each, "sweep") for each in (out / "command", called.out, listed.out)]
        reset = read_table(out / "command", "trials")["actor_resets"].to_pylist()
        assert (max(reset) > 0) or name == "none"
    assert len(found[0]) == 6
    assert all(each == found[0] for each in found)
