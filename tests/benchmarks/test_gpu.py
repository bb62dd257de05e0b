"""The benchmark of a GPU, on a CPU: that it measures everything, and ends when it has to."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks import gpu
from tune_calib.spec.gpus import read_rates

SCRIPT = Path(__file__).with_name("gpu.py")


def run(path: Path, *arguments: str) -> tuple[dict, str]:
    command = [sys.executable, SCRIPT, "--device", "cpu", "--steps", "2", "--of", "fast_dct"]
    ended = subprocess.run(
        [*command, "--json", path, *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(path.read_text("utf-8")), ended.stdout


def test_the_time_suffices_to_compile_each_network_in_bfloat16():
    compile_s = [network["compile_s"]["bf16"] for network in read_rates()["networks"].values()]
    assert gpu.COMPILING * 60 * gpu.MINUTES > max(filter(None, compile_s)) > 100


def test_steps_that_auto_takes_are_measured_first():
    kinds = [kind for kind, _ in gpu.ORDER]
    assert kinds == sorted(kinds, key=lambda kind: kind not in ("graph", "compiled"))


@pytest.mark.slow
def test_everything_but_compiled_steps_and_tf32_is_measured_on_a_cpu(tmp_path):
    record, output = run(tmp_path / "rates.json", "--processes", "1")
    network = record["networks"]["fast_dct"]
    assert network["gflop"] == pytest.approx(0.846, abs=0.001)
    rates = network["images_per_second"]
    measured = {kind: [p for p, rate in row.items() if rate] for kind, row in rates.items()}
    assert measured == {
        "papers_loop": ["installed"],
        "floor": ["bf16"],
        "eager": ["fp32", "bf16"],
        "graph": ["fp32", "bf16"],
        "compiled": [],
    }
    for steps in record["head_step_s"].values():
        assert min(steps.values()) > 0
    assert "fast_dct graph bf16" in output
    assert "1 x fast_dct bf16, captured: " in output


@pytest.mark.slow
def test_what_the_time_does_not_suffice_for_stays_empty(tmp_path):
    started = time.monotonic()
    record, output = run(tmp_path / "rates.json", "--minutes", "0.01")
    assert time.monotonic() - started < 60
    rates = record["networks"]["fast_dct"]["images_per_second"]
    assert not any(rate for row in rates.values() for rate in row.values())
    assert record["head_step_s"]["1"] == {"eager": None, "graph": None}
    assert "a step of K = 1  heads: -" in output
