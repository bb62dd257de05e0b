"""The share of a GPU with ``gpus=auto``: from memory and use, both measured by a real training."""

import pytest
import torch

from tests.support import here
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning import share
from tune_calib.tuning.share import StepCost, choose_divisor, describe_mps, measure_step

GB = 10**9


@pytest.mark.parametrize(
    ("costs", "divisor"),
    [
        ([StepCost(10 * GB, 0.01)], 7),  # nine tenths of 80 GB
        ([StepCost(2 * GB, 0.12)], 3),  # a third of a busy GPU
        ([StepCost(2 * GB, 0.12), StepCost(50 * GB, 0.01)], 1),  # the largest network decides
        ([StepCost(90 * GB, 0.01)], 1),  # it may not fit at all, which the training itself reports
        ([], 1),
    ],
)
def test_the_share_follows_from_memory_and_use(costs, divisor):
    assert choose_divisor(costs, 80 * GB) == divisor


def test_a_step_is_measured_by_training(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(share, "PRODUCT_SIZE", 64)
    network = {"backbone": "small_cnn", "epochs": 9, "method": "mixup", "batch_size": 16}
    spec = share._shorten(TrialSpec.build(network=network))
    cost = measure_step.__wrapped__(spec, torch.device("cpu"))
    assert cost.memory == 13 * GB
    assert 0 < cost.use < float("inf")


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_without_a_gpu_the_trials_use_the_processor(tmp_path):
    command = ["ablate", "mac_cal", "--dry-run", "--gpus", "auto", "--out", str(tmp_path / "out")]
    shown = here(*command)
    assert "no GPU on this machine, so the trials use its processor" in shown.stderr
    assert "no GPU" in shown.stdout
    refused = here(*command, "--address", "host:6379")
    assert refused.returncode == 2
    assert "times a step on a GPU of this machine" in refused.stderr


def test_the_daemon_of_mps_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert describe_mps().startswith("in turns")
    (tmp_path / "control").touch()
    assert describe_mps().startswith("concurrently")
