"""Whole commands on the emulated GPU, without Ray."""

import re
from pathlib import Path

import pytest
import torch

from tests import drawing
from tests.gpu.process import on_device
from tests.support import here
from tune_calib.results.tables import read_table
from tune_calib.spec.methods import METHODS

ON_GPU = ["--gpus", "1", "--address", "none", "--set", "data.train_fraction=0.25"]
NETWORKS = ["--epochs", "2"]
HEADS = [*NETWORKS, "--head-epochs", "2"]
GRAPH = ["--set", "network.execution=graph"]


def run(*arguments: object, out: Path) -> list[dict]:
    """Run a command to its end; return its rows."""
    drawing.without_figures()
    ended = here(*arguments, *ON_GPU, "--out", out)
    assert ended.returncode == 0, ended.stderr
    rows = read_table(out, "trials").to_pylist()
    assert rows
    for row in rows:
        assert row["status"] == "done", row
        assert (row["device"], row["gpu"]) == ("cuda", torch.cuda.get_device_name())
        assert row["peak_memory_bytes"] == torch.cuda.max_memory_allocated()
    return rows


@pytest.mark.parametrize("execution", ["eager", "graph", "auto"])
@on_device
def test_compare(execution, tmp_path):
    setting = f"network.execution={execution}"
    rows = run("compare", "ce", "ls", *NETWORKS, "--set", setting, out=tmp_path / "out")
    assert len(rows) == 2


@on_device
def test_executions_give_equal_results(tmp_path):
    results = []
    for execution in ("eager", "graph"):
        out = tmp_path / execution
        setting = f"network.execution={execution}"
        rows = run("compare", "ce", "mac_cal", *HEADS, "--set", setting, out=out)
        results.append({row["spec_hash"]: row["test/ece"] for row in rows})
        assert {row["execution"] for row in rows} == {execution}
    assert results[0] == results[1]


@on_device
def test_search(tmp_path):
    words = ["--trials", 3, "--population", 2, *GRAPH]
    assert len(run("search", "mac_cal", *HEADS, *words, out=tmp_path / "heads")) >= 3
    assert len(run("search", "ls", *NETWORKS, *words, out=tmp_path / "networks")) >= 3


@on_device
def test_ablate(tmp_path):
    rows = run(
        "ablate", "mac_cal", "--seeds", 2, "--controls", *HEADS, *GRAPH, out=tmp_path / "out"
    )
    assert len(rows) > 10


@on_device
def test_check_gpu_finds_no_difference_for_any_method():
    words = ["--backbone", "small_cnn", "--batch-size", 8, "--precision", "fp32"]
    ended = here("check-gpu", *words)
    assert ended.returncode == 0, ended.stderr
    lines = {line.split()[0]: line for line in ended.stdout.splitlines() if line}
    for info in METHODS.values():
        if info.kind == "posthoc":
            continue
        _, *_, difference, verdict = re.split(r"  +", lines[info.name].strip())
        # Times are those of the emulation.
        assert difference == "0", lines[info.name]
        assert verdict == "captured" or "as long as" in verdict, lines[info.name]
