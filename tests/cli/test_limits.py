"""What no machine, cluster or plan can give is refused at once, in one line."""

import os
import time

import pytest

from tests.support import sample

QUICK_S = 30.0
"""Of a refusal, the start of the program included, on a busy machine."""
TOO_MANY = 4 * (os.cpu_count() or 1) + 4096


@pytest.mark.parametrize("gpus", [-1.0, -0.5, 0.3, 0.33, 0.7, 1.5, 2.0, 1e9, float("nan")])
def test_an_impossible_share_of_a_gpu_is_refused(gpus, refusal, tmp_path):
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
        (["--set", f"network.lr={'[' * 5000}"], "network.lr"),
        (["--set", f"network.lr={'9' * 5000}"], "is not a valid value"),
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
        (f"entries: {{a: {{methods: [ls], search: {{trials: {10**9}}}}}}}", "at most 100,000"),
        ("entries: &a {b: *a}", "or contain themselves"),
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
