"""What only Ray can break: kills of its processes, divergence in an actor, reuse, a cluster."""

import logging
import os
import signal
import subprocess
import time
from ipaddress import ip_address

import grpc
import psutil
import pytest
import ray
from ray import tune
from ray._raylet import AuthenticationTokenLoader

from tests.support import QUICK, command_line, here, on_ray, rows, run_of, shared_ray, small_spec
from tune_calib.errors import UserError
from tune_calib.results.tables import read_table
from tune_calib.tuning.ray.session import ray_session
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.executor import Resources

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


PLUGIN = """
from dataclasses import replace
import beside
from tune_calib.spec.methods import METHODS

METHODS.register(replace(METHODS["fl"], name="mine"))
"""


@pytest.mark.slow
def test_workers_import_what_a_plug_in_imports_beside_it(tmp_path):
    shared_ray()
    for file, text in {"lab/plug": PLUGIN, "lab/beside": ""}.items():
        path = tmp_path / f"{file}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with on_ray(True):
        words = ["compare", "ce", "mine", "--plugin", tmp_path / "lab/plug.py", "--epochs", 1]
        done = here(*words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in rows(tmp_path / "out")] == ["done"] * 2


def check_killed_run(words, total, out, where=()):
    """Kill a run on Ray half-way, and let it go on: it has the results of one in this process."""
    command = command_line(*words, *where, "--out", out)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(out.glob("trials/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(rows(out)) < total
    left = {path: path.stat().st_mtime_ns for path in out.glob("trials/*.parquet")}
    with on_ray(True):
        done = here(*words, *where, "--out", out)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in left} == left
    assert max(read_table(out, "trials")["actor_resets"].to_pylist()) > 0
    complete = out.with_name("whole")
    with on_ray(False):
        alone = here(*words, "--out", complete)
    assert alone.returncode == 0, alone.stderr
    for table in ("trials", "curves", "bins", "intervals"):
        assert rows(out, table=table) == rows(complete, table=table)
    for path in complete.glob("tables/*.csv"):
        assert (out / path.relative_to(complete)).read_text() == path.read_text()
    return done


@pytest.mark.slow
def test_a_killed_ladder_goes_on_and_is_that_of_one_process(tmp_path):
    check_killed_run(["ablate", "mac_cal", *QUICK], 6, tmp_path / "killed")


@pytest.mark.parametrize("uses_ray", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_diverging_network_takes_its_heads_with_it(uses_ray, tmp_path):
    out = tmp_path / "diverged"
    setting = ["--set", "network.lr=1e30", "--set", "network.clip_grad_norm=null"]
    with on_ray(uses_ray):
        done = here("ablate", "mac_cal", *QUICK, *setting, "--out", out)
    assert done.returncode == 0, done.stderr
    assert {row["status"] for row in rows(out)} == {"diverged"}
    assert len(rows(out)) == 6


@pytest.mark.slow
def test_a_bound_trainable_runs_in_any_tuner(trained, tmp_path):
    space = {
        **small_spec().model_dump(mode="json", include={"data", "network"}),
        "head": {"epochs": 2, "augment": "none", "params": {"gamma": tune.grid_search([0.8, 1.0])}},
        "run": run_of(tmp_path / "out", trained),
    }
    tuner = tune.Tuner(
        trainable("mac_cal"),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="select/ece", mode="min", max_concurrent_trials=1, reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "ray"), verbose=0),
    )
    shared_ray()
    results = tuner.fit()
    assert not results.errors
    assert 0 <= results.get_best_result().metrics["select/ece"] <= 1
    assert not any(key.startswith("test/") for key in results[0].metrics)
    assert len(rows(tmp_path / "out")) == 2


@pytest.mark.slow
def test_a_running_ray_is_used_again_and_left():
    """As in a notebook, whose Ray may be one of a cluster."""
    shared_ray()
    first = ray.get_runtime_context().get_node_id()
    with ray_session(None):
        assert ray.get_runtime_context().get_node_id() == first
    assert ray.is_initialized()
    for options in ({"address": "auto"}, {"address": None, "variables": {"A": "1"}}):
        with pytest.raises(UserError, match="can be set; call `ray"), ray_session(**options):
            pass


def test_a_local_ray_listens_on_the_loopback_alone_and_requires_its_token():
    shared_ray()
    processes = {
        os.getpid(),
        *(process.pid for process in psutil.Process().children(recursive=True)),
    }
    listening = {
        ip_address(connection.laddr.ip)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in processes
    }
    assert listening
    for address in listening:
        assert (getattr(address, "ipv4_mapped", None) or address).is_loopback
    with grpc.insecure_channel(ray.get_runtime_context().gcs_address) as channel:
        call = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        token = AuthenticationTokenLoader.instance().get_raw_token()
        assert call(b"", timeout=60, metadata=[("authorization", f"Bearer {token}")])
    assert not logging.getLogger("ray._private.authentication").isEnabledFor(logging.WARNING)


@pytest.mark.slow  # kills on Ray are also among the faults
def test_a_killed_search_on_a_cluster_goes_on_and_is_that_of_one_process(own_ray, tmp_path):
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=2, num_gpus=1)
    second = cluster.add_node(num_cpus=2)
    try:
        # Two nodes of two cores have no room for a trial of four.
        message = "the largest node of the Ray cluster has 2 CPU cores and 1 GPUs"
        for wrong in (Resources(4), Resources(3, 1.0)):
            with (
                pytest.raises(UserError, match=message),
                ray_session(cluster.address, needs=[Resources(1), wrong]),
            ):
                pass
        cluster.remove_node(second)
        words = ["search", "mac_cal", "--trials", 4, "--population", 2, *QUICK]
        done = check_killed_run(words, 5, tmp_path / "killed", ["--address", cluster.address])
        assert f"runs on the Ray cluster at {cluster.address}" in " ".join(done.stderr.split())
        assert not ray.is_initialized()
    finally:
        ray.shutdown()
        cluster.shutdown()
