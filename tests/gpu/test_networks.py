"""Networks on the emulated GPU: captured steps equal eager ones, also when they are resumed."""

import gc
import os
import weakref
from itertools import cycle

import pytest
import torch

from tests.gpu.process import on_device
from tune_calib.data.base import Split
from tune_calib.data.splits import Development, load_development
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.tensors import read_tensors, write_tensors
from tune_calib.files.store import Store
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
METHODS_OF_NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
OPTIMIZERS = ["sgd", "adam", "adamw"]
METHODS_AND_OPTIMIZERS = list(zip(METHODS_OF_NETWORKS, cycle(OPTIMIZERS)))
EXECUTIONS = ["eager", "graph"]

# 75 images: the last of three batches is smaller.
FEW = {"train_fraction": 0.15, "label_noise": 0.1}
SLOT = {"epochs": 2, "batch_size": 32, "lr": 2**-6, "milestones": [0.5], "lr_decay": 0.5}


def spec_of(**network) -> TrialSpec:
    return TrialSpec.build(data=FEW, network={**SLOT, **network})


def trainer(**network) -> NetworkTrainer:
    spec = spec_of(**network)
    return NetworkTrainer(spec, load_development(spec.data, None), CUDA)


def assert_same(first: NetworkTrainer, second: NetworkTrainer) -> None:
    tensors, others = first.state()[0], second.state()[0]
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


@pytest.mark.parametrize(("method", "optimizer"), METHODS_AND_OPTIMIZERS)
@on_device
def test_captured_training_equals_eager_training(method, optimizer):
    slot = {"method": method, "optimizer": optimizer}
    eager, graph = (trainer(execution=execution, **slot) for execution in EXECUTIONS)
    assert len(eager.train) % SLOT["batch_size"]
    for report, other in zip(eager, graph, strict=True):
        assert report == other
        for name, values in eager.samples["train"].items():
            assert torch.equal(values, graph.samples["train"][name]), name
    assert graph.executor.recording is not None
    assert_same(eager, graph)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("method", "optimizer"), METHODS_AND_OPTIMIZERS)
@on_device
def test_training_resumed_from_a_file_equals_uninterrupted_training(
    method, optimizer, execution, tmp_path
):
    slot = {"method": method, "optimizer": optimizer, "execution": execution}
    uninterrupted, first, resumed = (trainer(**slot, select="min_val_nll") for _ in range(3))
    next(first)
    write_tensors(tmp_path / "checkpoint", *first.state())
    resumed.load_state(*read_tensors(tmp_path / "checkpoint"))
    next(resumed)
    list(uninterrupted)
    assert_same(uninterrupted, resumed)


@pytest.mark.parametrize(
    "settings", [{"clip_grad_norm": 0.1, "nesterov": True}, {"drop_last": True}]
)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@on_device
def test_captured_training_equals_eager_training_in_each_precision(precision, settings):
    slot = {"precision": precision, "loss_reduction": "sum", **settings}
    eager, graph = (trainer(execution=execution, **slot) for execution in EXECUTIONS)
    assert list(eager) == list(graph)
    assert_same(eager, graph)


def train_a_step(backbone: str, **network) -> NetworkTrainer:
    """Train on one batch of images, which are as small as the backbone allows."""
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)[:, :, :16, :16]
    split = Split(images.contiguous(), torch.arange(4), torch.arange(4))
    data = {"dataset": "cub", "resize": 16, "crop": 16}
    slot = {**SLOT, "epochs": 1, "batch_size": 4, "backbone": backbone, **network}
    built = NetworkTrainer(
        TrialSpec.build(data=data, network=slot), Development(split, split, split), CUDA
    )
    next(built)
    return built


@pytest.mark.parametrize("backbone", list(BACKBONES))
@on_device
def test_a_captured_step_of_each_backbone_equals_an_eager_step(backbone):
    torch.manual_seed(0)
    eager = train_a_step(backbone, execution="eager")
    torch.manual_seed(0)
    graph = train_a_step(backbone, execution="graph")
    assert graph.executor.recording is not None
    assert_same(eager, graph)


@pytest.mark.parametrize("backbone", list(BACKBONES))
@on_device
def test_each_backbone_has_deterministic_kernels(backbone):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as each process of a trial gets it
    train_a_step(backbone, execution="eager", deterministic=True)


@pytest.mark.parametrize("method", METHODS_OF_NETWORKS)
@on_device
def test_each_method_has_deterministic_kernels(method):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    list(trainer(method=method, deterministic=True, execution="graph", epochs=1))


@pytest.mark.parametrize("method", METHODS_OF_NETWORKS)
@on_device
def test_no_captured_step_waits_for_the_gpu(method):
    run = trainer(method=method, execution="graph")
    next(run)
    execute = run.executor

    class Watched:
        is_captured = True
        forget = execute.forget

        def __call__(self, inputs):
            torch.cuda.set_sync_debug_mode("error")
            try:
                return execute(inputs)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    run.executor = Watched()
    next(run)


@pytest.mark.parametrize("execution", EXECUTIONS)
@on_device
def test_a_finished_training_frees_the_gpu(execution, tmp_path):
    spec = spec_of(execution=execution)
    training = NetworkTraining(spec, Store(tmp_path), load_development(spec.data, None), CUDA)
    gc.collect()
    gc.disable()  # a worker may train its next network before the collector comes
    try:
        training.step()
        held = weakref.ref(training.trainer), weakref.ref(training.trainer.train.images.memory)
        while training.step() is not None:
            pass
        training.close()
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()
