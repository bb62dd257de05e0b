"""kill -9 of the driver, of workers and of nodes; two runs that want the same network."""

import signal
import time

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from tests.faults.common import chance, finish, killed, result, start, wait_until, workers

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

DRIVER_KILLS, WORKER_KILLS, NODE_KILLS = 8, 8, 3
KILLS_A_SWEEP = 4


def batches(total):
    return [min(KILLS_A_SWEEP, total - first) for first in range(0, total, KILLS_A_SWEEP)]


@pytest.mark.parametrize(("number", "kills"), list(enumerate(batches(DRIVER_KILLS))))
def test_the_driver_is_killed_again_and_again(number, kills, reference, length_s, tmp_path):
    moments, landed = chance(f"driver {number}"), 0
    while landed < kills:
        out = tmp_path / f"sweep-{landed}"
        # From the start of Python to the last heads. What is done stays, so that a later run may
        # be over before its kill; another run takes the kills that are left.
        while landed < kills and killed(start(out), moments.uniform(0.1, 1) * length_s):
            landed += 1
        code, output = finish(start(out))
        assert code == 0, output
        assert result(out) == reference


@pytest.mark.parametrize(("number", "kills"), list(enumerate(batches(WORKER_KILLS))))
def test_workers_are_killed_under_a_running_sweep(number, kills, reference, tmp_path):
    moments = chance(f"worker {number}")
    out = tmp_path / "sweep"
    process = start(out)
    for _ in range(kills):
        if not wait_until(lambda: workers(process), process):
            break
        time.sleep(moments.uniform(0, 1.5))
        victims = workers(process)
        if victims:
            moments.choice(victims).kill()
    code, output = finish(process)
    assert code == 0, output
    assert result(out) == reference


def test_a_driver_whose_node_is_killed_exits_with_a_message_and_can_resume(reference, tmp_path):
    out = tmp_path / "sweep"
    process = start(out)
    assert wait_until(lambda: workers(process), process)
    children = psutil.Process(process.pid).children(recursive=True)
    (raylet,) = [child for child in children if child.name() == "raylet"]
    raylet.kill()
    code, output = finish(process)
    assert code == 2
    assert "error: the Ray node of this machine died" in output
    assert "Traceback" not in output
    code, output = finish(start(out))
    assert code == 0, output
    assert result(out) == reference


def test_nodes_are_lost_under_a_running_sweep(reference, tmp_path):
    moments = chance("nodes")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    try:
        lost = 0
        while lost < NODE_KILLS:
            out = tmp_path / f"sweep-{lost}"
            process = start(out, "--address", cluster.address)
            while lost < NODE_KILLS and wait_until(lambda: busy_nodes(nodes), process):
                time.sleep(moments.uniform(0, 2))
                victim = moments.choice(busy_nodes(nodes) or nodes)
                cluster.remove_node(victim, allow_graceful=False)
                nodes.remove(victim)
                nodes.append(cluster.add_node(num_cpus=1))
                lost += 1
            code, output = finish(process)
            assert code == 0, output
            assert result(out) == reference
    finally:
        ray.shutdown()
        cluster.shutdown()


def busy_nodes(nodes):
    """Nodes on which a Ray trial runs."""
    return [node for node in nodes if any(is_busy(info) for info in node.live_processes())]


def is_busy(info):
    name, process = info
    if name != "raylet":
        return False
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return any("Trainable" in (child.cmdline() or [""])[0] for child in children)
    except psutil.Error:
        return False


def test_two_sweeps_that_want_the_same_networks_train_them_once(reference, tmp_path):
    store = tmp_path / "store"
    processes = [start(tmp_path / name, "--store", store) for name in ("one", "two")]
    for process in processes:
        code, output = finish(process)
        assert code == 0, output
    assert all(result(tmp_path / name) == reference for name in ("one", "two"))
    assert len(list((store / "networks").iterdir())) == 2


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_clean_and_quick_and_prints_how_to_continue(sign, reference, tmp_path):
    out = tmp_path / "sweep"
    process = start(out)
    assert wait_until(lambda: workers(process), process)
    process.send_signal(sign)
    code, output = finish(process)
    assert code == 128 + sign
    assert "continue with: tune-calib ablate" in output
    assert "Traceback" not in output
    code, output = finish(start(out))
    assert code == 0, output
    assert result(out) == reference
