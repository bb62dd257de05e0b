"""Heads on the emulated GPU: captured steps equal eager ones, whatever the number of heads."""

import functools
import os
import tempfile
from itertools import cycle
from pathlib import Path

import pytest
import torch

from tests.engine.test_head_batch import MAC_CAL_OPTIONS
from tests.gpu.process import on_device
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.tensors import read_tensors, write_tensors
from tune_calib.files.store import Store
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
HEADS = [(name, {}) for name in METHODS if METHODS[name].kind == "head"]
HEADS += [("mac_cal", options) for options in MAC_CAL_OPTIONS if options]
HEADS += [("vtst", {"evaluation": "mean"})]
OPTIMIZERS = cycle(["adam", "adamw", "sgd"])
HEADS_AND_OPTIMIZERS = [
    (*head, optimizer) for head, optimizer in zip(HEADS, OPTIMIZERS, strict=False)
]
EXECUTIONS = ["eager", "graph"]


@functools.cache
def bank() -> FeatureBank:
    """The bank, with two views, of a network that was trained on the emulated GPU."""
    network = {"backbone": "small_cnn", "epochs": 1, "execution": "graph"}
    data, head = {"train_fraction": 0.2}, {"method": "retrain", "epochs": 2}
    spec = TrialSpec.build(data=data, network=network, head=head)
    store = Store(Path(tempfile.mkdtemp(dir=os.environ["TUNE_CALIB_CACHE"])))
    development = load_development(spec.data, None)
    training = NetworkTraining(spec, store, development, CUDA)
    while training.step() is not None:
        pass
    training.close()
    splits = development, load_test(spec.data, None)
    return ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, lambda: splits, CUDA)


def trainer(
    count: int, method: str, params: dict, execution: str = "graph", device=CUDA, **head
) -> HeadBatchTrainer:
    """Build a trainer of heads with other seeds and rates; the last batch of 100 is smaller."""
    slots = []
    for k in range(count):
        settings = {"epochs": 2, "batch_size": 32, "select": "min_val_nll", **head}
        head_slot = {"method": method, "params": params, "seed": k, "lr": 2**-7 * (k + 1)}
        slots.append(HeadSlot.build(**settings, **head_slot))
    return HeadBatchTrainer(slots, bank(), 0, device, execution)


def assert_same(first: HeadBatchTrainer, second: HeadBatchTrainer) -> None:
    tensors, others = first.state(), second.state()
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize(("method", "params", "optimizer"), HEADS_AND_OPTIMIZERS)
@on_device
def test_captured_heads_equal_eager_heads(method, params, count, optimizer):
    slot = {"optimizer": optimizer, "clip_grad_norm": 0.5, "batch_order": "own"}
    eager, graph = (trainer(count, method, params, how, **slot) for how in EXECUTIONS)
    for report, other in zip(eager, graph, strict=True):
        for name, values in report.items():
            assert torch.equal(values, other[name]), name
    assert graph.executor.recording is not None
    assert_same(eager, graph)
    select = bank().select()
    assert torch.equal(eager.predict(select), graph.predict(select))


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("method", "params"), HEADS)
@on_device
def test_heads_resumed_from_a_file_equal_uninterrupted_heads(method, params, execution, tmp_path):
    uninterrupted, first, resumed = (
        trainer(3, method, params, execution, optimizer="adam") for _ in range(3)
    )
    next(first)
    write_tensors(tmp_path / "checkpoint", first.state(), {})
    resumed.load_state(read_tensors(tmp_path / "checkpoint")[0])
    next(resumed)
    list(uninterrupted)
    assert_same(uninterrupted, resumed)


@pytest.mark.parametrize(("method", "params"), HEADS)
@on_device
def test_draws_of_a_head_do_not_depend_on_the_number_of_heads(method, params):
    alone, together = trainer(1, method, params), trainer(8, method, params)
    for built in (alone, together):
        built.method.begin_epoch(0)
        built.method.begin_batch(0)
    draws, others = alone.method.draw(0, 8), together.method.draw(0, 8)
    assert draws.keys() == others.keys()
    for name, tensor in draws.items():
        assert tensor.device.type == "cuda"
        assert torch.equal(tensor[0], others[name][0])


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("method", "params"), HEADS)
@on_device
def test_no_step_of_heads_waits_for_the_gpu(method, params, execution):
    run = trainer(3, method, params, execution)
    next(run)
    run.method.begin_epoch(1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run._train_epoch(0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
