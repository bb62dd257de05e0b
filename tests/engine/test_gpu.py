"""Networks on a GPU: no wait inside an epoch, precisions, graphs, equal digits where asked for."""

import pytest
import torch

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
CLASSES = 10


def trainer(**network) -> NetworkTrainer:
    chance = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8, generator=chance)
    split = Split(images, torch.arange(256) % CLASSES, torch.arange(256))
    network = {"epochs": 2, "batch_size": 64, "backbone": "small_vgg", "lr": 0.01, **network}
    spec = TrialSpec.build(data={"dataset": "cifar10"}, network=network)
    return NetworkTrainer(spec, Development(split, split, split), torch.device("cuda"))


@pytest.mark.parametrize("method", NETWORKS)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_every_method_learns_in_every_precision(method, precision):
    reports = list(trainer(method=method, precision=precision, lr=0.02))
    assert all(torch.isfinite(torch.tensor(list(report.values()))).all() for report in reports)


@pytest.mark.parametrize("augment", ["standard", "none"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_operation_synchronises_with_the_gpu_within_an_epoch(augment, precision):
    run = trainer(augment=augment, precision=precision)
    next(run)
    step = run._step

    def watched(*given):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    run._step = watched
    next(run)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_deterministic_runs_give_equal_digits(precision, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    runs = [trainer(deterministic=True, precision=precision) for _ in range(2)]
    first, second = (list(run) and run.selected() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_precisions_set_the_flags_of_torch():
    trainer(precision="tf32")
    assert torch.backends.cudnn.conv.fp32_precision == "tf32"
    trainer(precision="fp32")
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize("method", ["ce", "fedlas_ls", "mixup", "mit_l"])
def test_a_compiled_backbone_learns_with_losses_left_as_they_are(method):
    plain, compiled = list(trainer(method=method)), list(trainer(method=method, compile=True))
    assert compiled[-1]["train/loss"] == pytest.approx(plain[-1]["train/loss"], rel=0.1)
