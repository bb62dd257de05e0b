"""The share of a GPU with ``gpus=auto``: from the memory of a real training step."""

from pathlib import Path

import pytest
import torch

from tests.support import here
from tune_calib.errors import UserError
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning import share
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.share import choose_divisor, resolve_share

GB = 10**9


@pytest.mark.parametrize(
    ("used", "networks", "divisor"),
    [
        ([10 * GB], 99, 7),  # nine tenths of 80 GB
        ([2 * GB], 99, 8),  # the most that share a GPU
        ([2 * GB, 50 * GB], 99, 1),  # the largest one decides
        ([90 * GB], 99, 1),  # may not fit at all, which the training reports
        ([2 * GB], 2, 2),  # more would idle another GPU
    ],
)
def test_the_share_follows_from_memory_and_networks(used, networks, divisor):
    assert choose_divisor(used, 80 * GB, networks) == divisor


@pytest.fixture
def gpu(monkeypatch):
    """What is read from a GPU, and steps that a CPU takes."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2 * GB)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)


def shorten(method):
    network = {"backbone": "small_cnn", "epochs": 9, "method": method, "batch_size": 16}
    return share._shorten(TrialSpec.build(network=network))


@pytest.mark.parametrize("method", ["mixup", "adafocal"])
def test_a_step_is_measured_by_training(gpu, method):
    size = share.measure_step(shorten(method), torch.device("cpu"))
    assert size == 11 * GB  # 8 outside of torch, and 3 at the peak


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_without_a_gpu_the_trials_use_the_processor(tmp_path):
    command = ["ablate", "mac_cal", "--dry-run", "--gpus", "auto", "--out", str(tmp_path / "out")]
    assert "(gpus auto: this machine has no GPU)" in " ".join(here(*command).stdout.split())


@pytest.mark.slow
def test_networks_are_measured_once_in_another_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    network = {"backbone": "small_cnn", "execution": "compiled"}
    specs = [TrialSpec.build(network={**network, "seed": seed}) for seed in range(8)]
    location = RunLocation(Path("out"), Path("store"))
    if not torch.cuda.is_initialized() and not Path("/dev/nvidia0").exists():
        with pytest.raises(UserError, match=r"^the steps of `gpus` auto failed: .*; give `gpus`"):
            resolve_share(location, specs)

    def measure(kinds):
        assert [spec.network.execution for spec in kinds] == ["graph"]
        return [10 * GB], 80 * GB

    monkeypatch.setattr(share, "_measure_elsewhere", measure)
    shared = resolve_share(location, specs)
    assert shared.gpus == 1 / 4
    assert shared.gpus_reason == ("gpus auto: 8 networks for 2 GPUs, each with up to 10.0 of 80 GB")


def test_runs_without_networks_or_ray_need_no_measurement(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    trained = TrialSpec.build(network={"backbone": "small_cnn"})
    for address, specs in ((None, []), ("none", [trained]), ("auto", [trained])):
        location = RunLocation(Path("out"), Path("store"), address=address)
        assert resolve_share(location, specs).gpus == 1
