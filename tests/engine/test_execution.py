"""Execution of steps: captured ones equal eager ones, on a CPU by a tape instead of a graph."""

import errno
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.engine.test_head_batch import MAC_CAL_OPTIONS, ScaledViews
from tests.support import CPU, here, sample, small_spec
from tune_calib.conformance.tape import capture, record
from tune_calib.data.splits import load_development
from tune_calib.engine import execution
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.engine.execution import LEAST_COMPILED, Captured, compiling, resolve_execution
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.steps import Stopwatch
from tune_calib.engine.store import Store, artifact_manifest
from tune_calib.errors import RefusedError, UserError
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.worker import _planned

CUDA = torch.device("cuda")
FEW = {"train_fraction": 0.1}


def trainer(is_captured: bool, **network) -> NetworkTrainer:
    """A trainer with the fused optimiser of a GPU and rates that float32 represents."""
    slot = {"epochs": 3, "batch_size": 20, "lr": 2**-6, "lr_decay": 0.5, "milestones": [0.4]}
    spec = TrialSpec.build(data=FEW, network={**slot, **network})
    built = NetworkTrainer(spec, load_development(spec.data, None), CPU)
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


def test_a_step_runs_once_for_all_full_batches():
    run, calls = trainer(True), []
    step = run.executor.step
    run.executor.step = lambda inputs: calls.append(len(inputs["positions"])) or step(inputs)
    list(run)
    full, last = 20, len(run.train) % 20
    assert len(run.train) > 2 * full  # outputs of a full batch are not those of the next one
    # Warm-up and recording; the smaller last batches are eager.
    assert calls == [full, full, last, last, last]


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


def test_a_loaded_state_is_what_captured_steps_change():
    eager, captured = trainer(False), trainer(True)
    next(eager), next(captured)
    state = copied(captured.state())
    next(captured)
    captured.load_state(*copied(state))
    list(eager), list(captured)
    assert_same(eager, captured)


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


@pytest.mark.parametrize("order", ["shared", "own"])
@pytest.mark.parametrize("places", [1, 2, 3])
def test_captured_heads_gather_each_view_at_its_positions(places, order, bank, monkeypatch):
    slot = {"batch_order": order, "epochs": 4, "batch_size": 96}
    slots = [small_spec(method="mac_cal", seed=k, **slot).head for k in range(2)]
    eager, captured = (HeadBatchTrainer(slots, ScaledViews(bank), 0, CPU) for _ in range(2))
    capture(captured)
    # As many as fit the memory of a GPU.
    monkeypatch.setattr(captured.views, "count_places", lambda size: places)
    for reports in zip(eager, captured, strict=True):
        assert all(torch.equal(reports[0][name], reports[1][name]) for name in reports[0])
    assert captured.executor.inputs.keys() >= {"positions"}
    assert "features" not in captured.executor.inputs
    assert len(captured.views.places) == places


def test_captured_heads_train_on_after_a_prediction(bank):
    slots = [small_spec(method="mac_cal", seed=k, select="best_val_acc").head for k in range(2)]
    eager, captured = (HeadBatchTrainer(slots, bank, 0, CPU) for _ in range(2))
    capture(captured)
    for reports in zip(eager, captured, strict=True):
        captured.predict(bank.select())
        assert all(torch.equal(reports[0][name], reports[1][name]) for name in reports[0])


def test_a_profile_of_captured_steps_has_one_phase_for_them():
    run = trainer(True)
    next(run)
    run.watch = Stopwatch()
    next(run)
    assert "captured step" in run.watch.seconds
    assert not {"forward", "backward"} & run.watch.seconds.keys()


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
    monkeypatch.setattr(execution, "_has_compiler", lambda: True)
    assert resolve_execution(*arguments) == resolved


def test_auto_does_not_compile_without_a_compiler(monkeypatch):
    monkeypatch.setattr(execution.shutil, "which", lambda name: None)
    assert resolve_execution("auto", CUDA, True, LEAST_COMPILED) == "graph"


@pytest.mark.parametrize("requested", ["graph", "compiled"])
def test_captured_steps_without_a_gpu_are_refused_in_one_line(requested, tmp_path):
    with pytest.raises(UserError, match=f"network.execution={requested} needs a GPU"):
        NetworkTrainer(
            TrialSpec.build(data=FEW, network={"execution": requested}),
            load_development(TrialSpec.build(data=FEW, network={}).data, None),
            CPU,
        )
    setting = f"network.execution={requested}"
    ended = here("compare", "ce", "--set", setting, "--out", tmp_path / "out", "--address", "none")
    assert ended.returncode == 2
    assert f"{setting} needs a GPU" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_captured_steps_of_a_method_without_them_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(METHODS["ls"].implementation, "is_capturable", False)
    TrialSpec.build(network={"method": "ls", "execution": "eager"})
    with pytest.raises(UserError, match="a step of network method 'ls' cannot be captured"):
        TrialSpec.build(network={"method": "ls", "execution": "graph"})
    with pytest.raises(UserError, match="only a whole backbone is compiled; use graph"):
        TrialSpec.build(network={"method": "mit_a", "execution": "compiled"})


def test_every_method_of_the_program_can_be_captured():
    """As docs/pages/speed.md says; that it is true is a check of each method."""
    methods = [info for info in METHODS.values() if info.kind != "posthoc"]
    assert [info.name for info in methods if not info.implementation.is_capturable] == []


def test_too_little_memory_for_a_capture_is_one_line():
    def fails(step):
        raise torch.OutOfMemoryError("CUDA out of memory\nand much more")

    executor = Captured(lambda inputs: inputs, dict, record=fails)
    with pytest.raises(UserError, match="too little memory to capture a step"):
        executor({"rate": torch.ones(())})


class _Compiled:
    """A network whose compilation fails, or not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @contextmanager
    def compiled(self):
        if self.error:
            raise self.error
        yield


def test_code_is_compiled_into_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with compiling(_Compiled(), "small_vgg"):
        assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "compiled"
        assert (tmp_path / "locks" / "compile-small_vgg").exists()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    error = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(RefusedError, match=r"cannot compile small_vgg in .*No space left"),
        compiling(_Compiled(error), "small_vgg"),
    ):
        pass


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


def test_the_manifest_of_a_network_tells_its_execution(tmp_path):
    spec = TrialSpec.build(data=FEW, network={"epochs": 1})
    run = NetworkTraining(spec, Store(tmp_path), load_development(spec.data, None), CPU)
    while run.step() is not None:
        pass
    run.close()
    assert artifact_manifest(run.artifact)["execution"] == "eager"
