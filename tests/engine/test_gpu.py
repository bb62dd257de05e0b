"""Networks on a GPU: no wait inside an epoch, precisions, graphs, equal digits where asked for."""

from itertools import cycle

import pytest
import torch

from tests.support import small_spec
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
HEADS = [name for name in METHODS if METHODS[name].kind == "head"]
CLASSES = 10


def trainer(**network) -> NetworkTrainer:
    chance = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8, generator=chance)
    split = Split(images, torch.arange(256) % CLASSES, torch.arange(256))
    network = {"epochs": 2, "batch_size": 64, "backbone": "small_vgg", "lr": 0.01, **network}
    spec = TrialSpec.build(data={"dataset": "cifar10"}, network=network)
    return NetworkTrainer(spec, Development(split, split, split), torch.device("cuda"))


@pytest.mark.parametrize(("method", "precision"), list(zip(NETWORKS, cycle(["bf16", "tf32"]))))
def test_every_method_learns_in_a_fast_precision(method, precision):
    reports = list(trainer(method=method, precision=precision, lr=0.02))
    assert all(torch.isfinite(torch.tensor(list(report.values()))).all() for report in reports)


@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize("augment", ["standard", "none"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_operation_synchronises_with_the_gpu_within_an_epoch(execution, augment, precision):
    run = trainer(execution=execution, augment=augment, precision=precision)
    next(run)
    execute = run.executor

    def watched(inputs):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return execute(inputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    watched.is_captured = execute.is_captured
    run.executor = watched
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


@pytest.mark.parametrize(("method", "optimizer"), list(zip(NETWORKS, cycle(["sgd", "adam"]))))
def test_captured_training_equals_eager_training(method, optimizer, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    slot = {"method": method, "optimizer": optimizer, "deterministic": True}
    eager, graph = (trainer(execution=execution, **slot) for execution in ("eager", "graph"))
    assert list(eager) == list(graph)
    weights, others = eager.selected(), graph.selected()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("method", ["ce", "mixup"])  # each is compiled for up to a minute
def test_a_compiled_backbone_learns_with_losses_left_as_they_are(method):
    plain = list(trainer(method=method, execution="eager"))
    compiled = list(trainer(method=method, execution="compiled"))
    assert compiled[-1]["train/loss"] == pytest.approx(plain[-1]["train/loss"], rel=0.1)


@pytest.mark.parametrize(("method", "optimizer"), list(zip(HEADS, cycle(["sgd", "adam"]))))
def test_captured_heads_equal_eager_heads_whatever_their_number(method, optimizer, bank):
    slots = [
        small_spec(method=method, seed=k, optimizer=optimizer, clip_grad_norm=1.0).head
        for k in range(3)
    ]
    device = torch.device("cuda")
    eager = HeadBatchTrainer(slots, bank, 0, device, "eager")
    graph = HeadBatchTrainer(slots, bank, 0, device, "graph")
    for reports in zip(eager, graph, strict=True):
        for name in reports[0]:
            # A GPU's library may choose another algorithm within a capture.
            torch.testing.assert_close(reports[0][name], reports[1][name], rtol=1e-4, atol=1e-6)
    alone = HeadBatchTrainer(slots[1:2], bank, 0, device, "graph")
    alone.method.begin_epoch(0)
    graph.method.begin_epoch(0)
    for name, tensor in alone.method.draw(0, 8).items():
        assert torch.equal(tensor[0], graph.method.draw(0, 8)[name][1])


def test_captured_training_resumed_after_an_epoch_equals_eager_training(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    slot = {"method": "plp", "epochs": 3, "deterministic": True}
    eager, first, second = (trainer(execution=e, **slot) for e in ("eager", "graph", "graph"))
    next(first)
    tensors, values = first.state()
    second.load_state({name: tensor.clone() for name, tensor in tensors.items()}, values)
    list(eager), list(second)
    weights, others = eager.selected(), second.selected()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
