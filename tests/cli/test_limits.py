"""What no machine, cluster or plan can give is refused at once, in one line."""

import os
import signal
import socket
import time
from types import SimpleNamespace

import pytest
import ray
import yaml
from typer.testing import CliRunner

from tests.benchmarks.overhead import resident
from tests.support import sample, small_spec
from tune_calib.cli import app
from tune_calib.cli.options import _share
from tune_calib.engine.machine import count_cores
from tune_calib.errors import UserError
from tune_calib.spec.yaml_text import UnfoldedError, parse_yaml
from tune_calib.tuning.ray import session
from tune_calib.tuning.ray.session import ray_session
from tune_calib.tuning.work.executor import Resources, refuse_here

QUICK_S = 30.0
"""Of a refusal, the start of the program included, on a busy machine."""
TOO_MANY = 4 * (os.cpu_count() or 1) + 4096


def laughs(levels: int) -> str:
    """A list that its aliases unfold to 9 ** levels values, in one line."""
    inside = "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}], " for n in range(1, levels + 1)
    )
    return f"{{a0: &a0 [1], {inside}}}"


@pytest.mark.parametrize(
    "spell", [lambda k: 1 / k, lambda k: _share(f"1/{k}")], ids=["1.0/k", "1/k"]
)
def test_every_share_of_a_gpu_is_accepted_and_allows_as_many_trials(spell):
    trials = range(1, 200)
    assert [round(1 / Resources(1, spell(k)).gpus) for k in trials] == list(trials)


@pytest.mark.parametrize("gpus", [-1.0, -0.5, 0.3, 0.33, 0.7, 1.5, 2.0, 1e9, float("nan")])
def test_an_impossible_share_of_a_gpu_is_refused(gpus, refusal, tmp_path):
    with pytest.raises(UserError, match="0, 1, 1/k"):
        Resources(1, gpus)
    for command in (["ablate", "mac_cal"], ["compare", "ce"], ["search", "mac_cal"]):
        message = refusal(*command, f"--gpus={gpus}", "--out", tmp_path / "out")
        assert "0, 1, 1/k" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", sample([["ablate", "mac_cal"], ["compare", "ce"], ["search", "fl"]], 1)
)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--set", f"network.threads={TOO_MANY}"], f"needs {TOO_MANY} CPU cores"),
        (["--gpus", "1"], "1 GPUs"),
        (["--gpus", "1/49"], "0.0204082 GPUs"),
        (["--address", "127.0.0.1:9"], "no Ray cluster at --address 127.0.0.1:9"),
        (["--address", "ray://127.0.0.1:9"], "no Ray cluster at --address ray://127.0.0.1:9"),
        (["--address", "127.0.0.1:99999"], "no Ray cluster at"),
        (["--address", "nowhere"], "no Ray cluster at --address nowhere"),
        (["--seeds", str(10**9)], "at most 100,000"),
        (["--network-seeds", str(10**5), "--head-seeds", str(10**5)], "at most 100,000"),
        (["--set", f"network.lr={laughs(9)}"], "aliases expand to more than"),
        (["--set", f"network.lr={'[' * 5000}"], "network.lr"),
        (["--set", f"network.lr={'9' * 5000}"], "is not a valid value"),
        (["--set", "network.backbone=!!binary aGFsbG8="], "is not a valid value"),
    ],
)
def test_a_command_beyond_the_limits_is_refused_at_once(command, asked, message, refusal, tmp_path):
    import torch

    if "--gpus" in asked and torch.cuda.is_available():
        return  # there is a GPU here
    started = time.monotonic()
    assert message in refusal(*command, *asked, "--epochs", 1, "--out", tmp_path / "out")
    assert time.monotonic() - started < QUICK_S
    if asked != ["--address", "nowhere"]:  # which Ray refuses
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"seeds: {10**9}\nentries: {{a: {{methods: [ls]}}}}", "line 1"),
        (f"entries: {{a: {{methods: [ls], seeds: {10**9}}}}}", "at most 100,000"),
        (f"entries: {{a: {{methods: [ls], seeds: {{networks: {10**9}}}}}}}", "at most 100,000"),
        (f"entries: {{a: {{methods: [ls], search: {{trials: {10**9}}}}}}}", "at most 100,000"),
        (f"entries: {{a: {{methods: [tst], search: {{heads: {10**9}}}}}}}", "at most 100,000"),
        (
            f"entries: {{a: {{methods: [ls], search: {{trials: 3, seeds: {10**9}}}}}}}",
            "at most 100,000",
        ),
        (f"x: {laughs(9)}\nentries: {{}}", "aliases expand to more than"),
        ("entries: &a {b: *a}", "an alias contains itself"),
        (
            f"entries: {{a: {{methods: [ls], set: {{network: {{threads: {TOO_MANY}}}}}}}}}",
            f"a trial needs {TOO_MANY} CPU cores",
        ),
        ("entries: {a: {methods: [ls], resources: {gpus: -1}}}", "must be 0, 1, 1/k"),
    ],
)
def test_an_experiment_file_beyond_the_limits_is_refused_at_once(text, expected, refusal, tmp_path):
    file = tmp_path / "experiment.yaml"
    file.write_text(f"out: {tmp_path / 'out'}\n{text}")
    started = time.monotonic()
    message = refusal("run", file)
    assert expected.replace("line 1", "at most 100,000") in message
    assert time.monotonic() - started < QUICK_S
    assert not (tmp_path / "out").exists()


def test_a_dry_run_for_a_larger_machine_starts_no_threads(tmp_path):
    file = tmp_path / "experiment.yaml"
    file.write_text(
        f"out: {tmp_path / 'out'}\nset: {{network: {{threads: {TOO_MANY}}}}}\n"
        "entries: {a: {methods: [ls, mac_cal]}}"
    )
    before = len(os.listdir("/proc/self/task"))
    result = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert result.exception is None
    assert "this machine lacks the GPU or the cores" in result.stdout
    assert len(os.listdir("/proc/self/task")) < before + 100


def test_aliases_within_reason_are_read():
    text = "a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}"
    assert parse_yaml(text)[0] == yaml.safe_load(text)
    assert len(str(parse_yaml(laughs(4))[0])) > 9**4
    with pytest.raises(UnfoldedError):
        parse_yaml(laughs(5))


def test_a_cluster_without_an_answer_is_reported_within_seconds(own_ray):
    """A port that is taken, and where nobody listens."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        started = time.monotonic()
        with (
            pytest.raises(UserError, match=f"no Ray cluster at `address` 127.0.0.1:{port}"),
            ray_session(f"127.0.0.1:{port}"),
        ):
            pass
    assert time.monotonic() - started < QUICK_S


def test_trials_beyond_the_machine_need_an_address():
    refuse_here(None, [Resources(count_cores())])
    refuse_here("10.0.0.1:6379", [Resources(TOO_MANY, 1.0)])
    with pytest.raises(UserError, match="name an `address`"):
        refuse_here(None, [Resources(1), Resources(TOO_MANY)])
    assert small_spec().network.threads == 1


def test_a_local_ray_that_does_not_start_is_not_an_address(monkeypatch, own_ray):
    def fails(**_):
        raise RuntimeError("no space left\nfor a session")

    monkeypatch.setattr(ray, "init", fails)
    with (
        pytest.raises(UserError, match=r"^Ray does not start here: no space left for a session$"),
        ray_session(None),
    ):
        pass


def test_a_driver_stops_when_its_own_node_dies_and_for_no_other(monkeypatch):
    own, other = {"NodeID": "own", "Alive": True}, {"NodeID": "other", "Alive": False}
    answers = [[own, other], ConnectionError("busy"), [own], [{**own, "Alive": False}]]

    def nodes():
        if isinstance(answers[0], Exception):
            raise answers.pop(0)
        return answers.pop(0)

    context = SimpleNamespace(get_node_id=lambda: "own")
    monkeypatch.setattr(session, "NODE_CHECK_S", 0.02)
    monkeypatch.setattr(ray, "nodes", nodes)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    before = signal.getsignal(signal.SIGUSR2)
    with (
        pytest.raises(UserError, match="this machine died, or lacked the memory or CPU time"),
        session._watched_node(),
    ):
        time.sleep(30)
    assert not answers
    assert signal.getsignal(signal.SIGUSR2) == before


@pytest.mark.parametrize(("system", "factor"), [("linux", 1024), ("freebsd", 1024), ("darwin", 1)])
def test_peak_memory_is_bytes_on_every_system(system, factor, monkeypatch):
    """The system counts in KiB, or on macOS in bytes; Linux counts that of the parent too."""
    import resource
    import sys

    from tune_calib.tuning.work.rows import peak_memory

    monkeypatch.setattr(sys, "platform", system)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if system == "linux":
        peak = resident("VmHWM")
    assert peak_memory("cpu") == pytest.approx(peak * factor, rel=0.01)
