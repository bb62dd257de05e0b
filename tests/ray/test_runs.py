"""What only Ray can break: kills of its processes, divergence in an actor, reuse, a cluster."""

import os
import signal
import subprocess
import time

import pytest
from ray import tune

from tests.support import (
    QUICK,
    command_line,
    here,
    keep_ray,
    on_ray,
    rows,
    run_of,
    small_spec,
)
from tune_calib.errors import UserError
from tune_calib.tuning.ray.executor import Resources
from tune_calib.tuning.ray.ray_executor import slots
from tune_calib.tuning.ray.session import ray_session
from tune_calib.tuning.ray.trainables import trainable

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

LADDER = ["ablate", "mac_cal", *QUICK]


def test_killed_half_way_and_run_again_gives_the_same_table(tmp_path):
    out, whole = tmp_path / "killed", tmp_path / "whole"
    words = command_line(*LADDER, "--out", out)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(out.glob("trials/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(rows(out)) < 6
    # Whoever goes on: the trials that Ray did stay.
    left = {path: path.stat().st_mtime_ns for path in out.glob("trials/*.parquet")}
    with on_ray(False):
        again = here(*LADDER, "--out", out)
        assert again.returncode == 0, again.stderr
        assert here(*LADDER, "--out", whole).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in left} == left
    assert rows(out) == rows(whole)
    for name in ("tables/ladder.md", "tables/ladder.csv"):
        assert (out / name).read_text() == (whole / name).read_text()


def test_a_diverging_network_takes_its_heads_with_it(tmp_path):
    out = tmp_path / "diverged"
    setting = ["--set", "network.lr=1e30", "--set", "network.clip_grad_norm=null"]
    done = here("ablate", "mac_cal", *QUICK, *setting, "--out", out)
    assert done.returncode == 0, done.stderr
    assert {row["status"] for row in rows(out)} == {"diverged"}
    assert len(rows(out)) == 6


def test_a_bound_trainable_runs_in_any_tuner(trained, tmp_path):
    space = {
        **small_spec().model_dump(mode="json", include={"data", "network"}),
        "head": {"epochs": 2, "augment": "none", "params": {"gamma": tune.grid_search([0.8, 1.0])}},
        "run": run_of(tmp_path / "out", trained),
    }
    tuner = tune.Tuner(
        trainable("mac_cal"),
        param_space=space,
        tune_config=tune.TuneConfig(metric="select/ece", mode="min"),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "ray"), verbose=0),
    )
    keep_ray()
    results = tuner.fit()
    assert not results.errors
    assert 0 <= results.get_best_result().metrics["select/ece"] <= 1
    assert not any(key.startswith("test/") for key in results[0].metrics)
    assert len(rows(tmp_path / "out")) == 2


def test_a_cluster_is_reached_by_its_address_and_refuses_what_no_node_has(own_ray, tmp_path):
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=2, num_gpus=1)
    cluster.add_node(num_cpus=2)
    try:
        # Two nodes of two cores have no room for a trial of four.
        told = "the largest node of the Ray cluster has 2 CPU cores and 1 GPUs"
        for wrong in (Resources(4), Resources(3, 1.0)):
            with (
                pytest.raises(UserError, match=told),
                ray_session(cluster.address, needs=[Resources(1), wrong]),
            ):
                pass
        share = Resources(1, 1 / 7)
        with ray_session(cluster.address, needs=[Resources(1), share]):
            assert slots(share) == 4
        out = tmp_path / "out"
        words = ["compare", "ce", *QUICK[:2], "--address", cluster.address, "--out", out]
        done = here(*words)
        assert done.returncode == 0, done.stderr
        assert f"runs on the Ray cluster at {cluster.address}" in " ".join(done.stderr.split())
        assert [row["status"] for row in rows(out)] == ["done"]
        assert not ray.is_initialized()
    finally:
        ray.shutdown()
        cluster.shutdown()
