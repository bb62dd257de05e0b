"""Execution of steps: captured ones equal eager ones, on a CPU by a tape instead of a graph."""

import gc
import json
import weakref
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _triton as triton

from tests.engine.test_head_batch import MAC_CAL_OPTIONS
from tests.support import CPU, sample, small_spec
from tune_calib.conformance.tape import capture, record
from tune_calib.data.splits import load_development
from tune_calib.engine import execution
from tune_calib.engine.execution import LEAST_COMPILED, Captured, resolve_execution
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.tensors import read_tensors, write_tensors
from tune_calib.errors import UserError
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.worker import _planned

CUDA = torch.device("cuda")
FEW = {"train_fraction": 0.1}


def trainer(is_captured: bool, stored: int | None = None, **network) -> NetworkTrainer:
    """A trainer with the fused optimiser of a GPU and rates that float32 represents.

    Its images are padded if they are to be ``stored`` larger.
    """
    slot = {"epochs": 3, "batch_size": 20, "lr": 2**-6, "lr_decay": 0.5, "milestones": [0.4]}
    spec = TrialSpec.build(data=FEW, network={**slot, **network})
    built = NetworkTrainer(spec, load_development(spec.data, None), CPU)
    if stored is not None:
        built.info = replace(built.info, stored=stored)
        for name in ("train", "select"):
            split, edge = getattr(built, name), (stored - built.info.size) // 2
            setattr(built, name, replace(split, images=F.pad(split.images, [edge] * 4)))
    for group in built.optimizer.param_groups:
        group["fused"] = True
    if is_captured:
        capture(built)
    return built


def copied(state):
    tensors, values = state
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}, values


def assert_same(first: NetworkTrainer, second: NetworkTrainer) -> None:
    tensors = first.state()[0]
    assert tensors.keys() == second.state()[0].keys()
    for name, tensor in second.state()[0].items():
        assert torch.equal(tensors[name], tensor), name


@pytest.mark.parametrize(
    "network",
    sample(
        [
            {"method": "fedlas_ls", "optimizer": "adamw", "loss_reduction": "sum"},
            {"nesterov": True, "clip_grad_norm": 0.01, "backbone": "small_vgg"},
            {"optimizer": "adam", "augment": "none", "drop_last": True},
            {"method": "adafocal", "select": "best_val_acc", "precision": "fp32"},
        ],
        2,
    ),
)
def test_captured_training_equals_eager_training(network):
    eager, captured = trainer(False, **network), trainer(True, **network)
    for report, other in zip(eager, captured, strict=True):
        assert report == other
        for name, values in eager.samples["train"].items():
            assert torch.equal(values, captured.samples["train"][name]), name
    assert_same(eager, captured)


@pytest.mark.parametrize("method", ["plp", "crl"])
def test_captured_training_resumed_after_any_epoch_equals_eager_training(method):
    slot = {"method": method, "select": "min_val_nll"}
    eager, state = trainer(False, **slot), None
    list(eager)
    for _ in range(eager.slot.epochs):
        resumed = trainer(True, **slot)
        if state is not None:
            resumed.load_state(*state)
        next(resumed)
        state = copied(resumed.state())
    assert_same(eager, resumed)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_moments_that_were_in_a_file_take_the_layout_of_their_parameter(optimizer, tmp_path):
    """A fused optimiser refuses another one on a GPU, and computes wrong numbers on a CPU."""
    uninterrupted, first, second = (trainer(False, optimizer=optimizer) for _ in range(3))
    next(first)
    tensors, values = first.state()
    write_tensors(tmp_path / "checkpoints" / "a", tensors, {})
    second.load_state(read_tensors(tmp_path / "checkpoints" / "a")[0], values)
    for parameter, moments in second.optimizer.state.items():
        for moment in moments.values():
            assert moment.shape != parameter.shape or moment.stride() == parameter.stride()
    list(uninterrupted), list(second)
    assert_same(uninterrupted, second)


@pytest.mark.parametrize("options", sample(MAC_CAL_OPTIONS, 4))
def test_captured_heads_resumed_after_any_epoch_equal_eager_heads(options, bank):
    slot = {"batch_order": "own", "select": "min_val_nll", "optimizer": "adam", "batch_size": 96}
    slots = [small_spec(method="mac_cal", seed=k, params=options, **slot).head for k in range(3)]
    eager, state = HeadBatchTrainer(slots, bank, 0, CPU), None
    for report in eager:
        captured = HeadBatchTrainer(slots, bank, 0, CPU)
        capture(captured)
        if state is not None:
            captured.load_state(state)
        other = next(captured)
        assert all(torch.equal(report[name], other[name]) for name in report)
        # Evaluation with the masks of the best epoch, after which captured steps go on.
        assert torch.equal(eager.predict(bank.select()), captured.predict(bank.select()))
        state = {name: tensor.detach().clone() for name, tensor in captured.state().items()}


def test_captured_heads_train_on_after_a_prediction(bank):
    slots = [small_spec(method="mac_cal", seed=k, select="best_val_acc").head for k in range(2)]
    eager, captured = (HeadBatchTrainer(slots, bank, 0, CPU) for _ in range(2))
    capture(captured)
    for reports in zip(eager, captured, strict=True):
        captured.predict(bank.select())
        assert all(torch.equal(reports[0][name], reports[1][name]) for name in reports[0])


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_finished_trainer_of_a_network_is_freed_without_the_collector(is_captured, no_collector):
    run = trainer(is_captured, select="min_val_nll")
    list(run)
    run.selected()
    left = [weakref.ref(part) for part in (run, run.executor, run.optimizer, *run.parameters)]
    del run
    assert [reference() for reference in left if reference() is not None] == []


def test_images_stored_larger_are_captured_once_whether_augmented_or_not():
    """Also the epochs without augmentation, which train on the centres of the images."""
    eager, captured = (
        trainer(is_captured, augment_until=0.5, epochs=4, drop_last=True, stored=10)
        for is_captured in (False, True)
    )
    calls, step = [], captured.executor.step
    captured.executor.step = lambda inputs: calls.append(inputs["images"].shape) or step(inputs)
    assert list(eager) == list(captured)
    assert calls == [(20, 1, 8, 8)] * 2  # warm-up and recording
    assert_same(eager, captured)


def test_a_capture_draws_no_random_numbers_and_changes_no_tensor():
    weight, numbers = torch.zeros(3), []

    def step(inputs):
        weight.add_(inputs["rate"] * torch.rand(3))
        return {"weight": weight.clone()}

    for executor in (execution.Eager(step), Captured(step, lambda: {"w": weight}, record=record)):
        weight.zero_()
        torch.manual_seed(0)
        rates = [{"rate": torch.tensor(rate)} for rate in (1.0, 0.5, 0.25)]
        outputs = [executor(inputs)["weight"] for inputs in rates]
        numbers.append([output.tolist() for output in outputs])  # after all steps
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("arguments", "resolved"),
    [
        (("auto", CPU, True, 10**9), "eager"),
        (("eager", CUDA, True, 10**9), "eager"),
        (("auto", CUDA, False, 10**9), "eager"),
        (("auto", CUDA, True, LEAST_COMPILED - 1), "graph"),
        (("auto", CUDA, True, LEAST_COMPILED), "compiled"),
        (("auto", CUDA, True, 0), "graph"),
        (("graph", CUDA, True, 10**9), "graph"),
        (("compiled", CUDA, True, 1), "compiled"),
        (("compiled", CUDA, True, 0), "graph"),  # a head
    ],
)
def test_device_method_and_length_decide_how_steps_are_executed(arguments, resolved, monkeypatch):
    monkeypatch.setattr(execution, "can_compile", lambda: True)
    assert resolve_execution(*arguments) == resolved


@pytest.mark.parametrize("lacks", ["nothing", "a compiler", "Python.h", "Triton"])
def test_auto_compiles_if_nothing_that_compilation_needs_is_missing(lacks, monkeypatch, tmp_path):
    monkeypatch.setattr(triton, "has_triton", lambda: lacks != "Triton")
    if lacks == "a compiler":
        monkeypatch.setattr(execution.shutil, "which", lambda name: None)
    if lacks == "Python.h":
        monkeypatch.setattr(execution.sysconfig, "get_config_var", lambda name: str(tmp_path))
    resolved = resolve_execution("auto", CUDA, True, LEAST_COMPILED)
    assert resolved == ("compiled" if lacks == "nothing" else "graph")


def test_execution_is_no_part_of_the_identity_but_reaches_the_worker():
    plain, eager = (TrialSpec.build(network=network) for network in ({}, {"execution": "eager"}))
    assert (plain.hash, plain.network_id) == (eager.hash, eager.network_id)
    received = _planned(json.loads(json.dumps(PlannedTrial(eager, 0, "ce").plain())))
    assert received.spec.network.execution == "eager"
    requests = [ResolvedRequest(), ResolvedRequest({"network": {"execution": "eager"}})]
    assert requests[0].identity() == requests[1].identity()


def test_specs_with_the_former_setting_keep_their_hash_where_it_was_off():
    assert TrialSpec.build(network={"compile": False}).hash == TrialSpec.build(network={}).hash
    with pytest.raises(UserError, match="was replaced by network") as error:
        TrialSpec.build(network={"compile": True})
    assert "\n" not in str(error.value)


def test_a_loaded_state_is_what_captured_steps_change():
    eager, captured = trainer(False), trainer(True)
    next(eager), next(captured)
    state = copied(captured.state())
    next(captured)
    captured.load_state(*copied(state))
    list(eager), list(captured)
    assert_same(eager, captured)


def test_every_method_of_the_program_can_be_captured():
    """As docs/pages/speed.md says; that it is true is a check of each method."""
    methods = [info for info in METHODS.values() if info.kind != "posthoc"]
    assert [info.name for info in methods if not info.implementation.is_capturable] == []
