"""Self-checks of captured steps, on a CPU by a tape instead of a graph."""

import itertools
import math
import time

import pytest
import torch

from tests.support import CPU, small_spec
from tune_calib.conformance.tape import record
from tune_calib.data.splits import load_development
from tune_calib.engine import self_check
from tune_calib.engine.execution import describe_execution
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.self_check import Proven, SelfCheck, Subject, find_difference, list_refusals
from tune_calib.errors import DivergedError, RefusedError
from tune_calib.spec.trial import TrialSpec

SUBJECT = Subject("graph", "ls", None, "small_cnn", "fp32")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(self_check, "SLOWER", math.inf)  # a tape is slower than eager steps
    return tmp_path / "cache"


def trainer(how=record, **network) -> NetworkTrainer:
    """A trainer that proves its steps on a tape, with rates that float32 represents."""
    slot = {"method": "ls", "epochs": 2, "batch_size": 20, "lr": 2**-6, "lr_decay": 0.5, **network}
    spec = TrialSpec.build(data={"train_fraction": 0.1}, network=slot)
    built = NetworkTrainer(spec, load_development(spec.data, None), CPU)
    for group in built.optimizer.param_groups:
        group["fused"] = True
    if how is not None:
        built.executor = Proven(SUBJECT, built._step, built.changing, record=how)
    return built


def assert_equal_training(proven, **network):
    eager = trainer(None, **network)
    for report, expected in zip(proven, eager, strict=True):
        assert report == expected
    for name, tensor in eager.changing().items():
        assert torch.equal(proven.changing()[name], tensor), name


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_check_of_equal_steps_leaves_no_trace_in_a_captured_training(optimizer):
    proven = trainer(optimizer=optimizer)
    assert_equal_training(proven, optimizer=optimizer)
    check = proven.executor.check
    assert (check.refusal, check.difference) == ("", 0.0)
    assert check.eager_s > 0
    assert check.captured_s > 0
    assert proven.executor.recording is not None
    assert describe_execution("graph", proven.executor) == "graph"


def forgetting(name):
    """Record steps that do not change a tensor whose name begins with ``name``."""

    def record_wrongly(step):
        repeat, outputs = record(step)

        def repeat_wrongly():
            saved = {n: t.clone() for n, t in wrong.changing().items() if n.startswith(name)}
            repeat()
            for tensor_name, tensor in saved.items():
                wrong.changing()[tensor_name].copy_(tensor)

        return repeat_wrongly, outputs

    wrong = trainer(record_wrongly)
    return wrong


@pytest.mark.parametrize(
    "name",
    [
        "network.head.weight",  # one tensor among many that are right
        "network.backbone.1.num_batches_tracked",
        "optimizer.0.momentum_buffer",
    ],
)
def test_a_captured_step_that_differs_is_refused_and_the_training_is_eager(name):
    wrong = forgetting(name)
    assert name in wrong.changing() or name.startswith("optimizer")
    assert_equal_training(wrong)
    refusal = wrong.executor.check.refusal
    assert refusal.startswith(f"after 3 steps {name} differs by ")
    assert describe_execution("graph", wrong.executor) == f"graph: refused ({refusal})"
    assert not wrong.executor.is_captured


def fixing(name):
    """Record steps that take one input of the first step again."""

    def record_wrongly(step):
        (inputs,) = step.args
        fixed = inputs[name].clone()
        repeat, outputs = record(step)
        return lambda: (inputs[name].copy_(fixed), repeat()), outputs

    return trainer(record_wrongly)


@pytest.mark.parametrize("name", ["images", "positions", "lr"])
def test_a_captured_step_that_fixed_an_input_is_refused(name):
    wrong = fixing(name)
    assert_equal_training(wrong)
    assert " differs by " in wrong.executor.refusal


def failing(error):
    """Record steps by raising an error after one."""

    def fail(step):
        step()
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "is_stored"),
    [
        (RefusedError("a step cannot be captured"), True),
        (torch.OutOfMemoryError("of this batch"), False),
        (RuntimeError("an error of CUDA\nand its advice"), False),
    ],
)
def test_a_capture_that_fails_is_refused_and_leaves_no_trace(error, is_stored):
    run = trainer(failing(error))
    assert_equal_training(run)
    assert run.executor.refusal
    assert "\n" not in run.executor.refusal
    assert (SUBJECT.read() is not None) == is_stored


def test_steps_that_diverge_prove_nothing_about_others():
    run = trainer(lr=1e30)
    with pytest.raises(DivergedError):
        next(run)
    assert math.isnan(run.executor.check.difference)
    assert SUBJECT.read() is None


def test_a_slower_captured_step_is_refused(monkeypatch):
    monkeypatch.setattr(self_check, "SLOWER", 1.1)

    def record_slowly(step):
        repeat, outputs = record(step)
        return lambda: (time.sleep(0.05), repeat()), outputs

    slow = trainer(record_slowly)
    assert_equal_training(slow)
    assert slow.executor.refusal.startswith("it takes ")
    assert slow.executor.refusal.endswith(" times as long as the eager step")


def test_a_check_is_done_once_for_each_subject_and_version(monkeypatch):
    prove, checks = Proven._prove, []
    monkeypatch.setattr(Proven, "_prove", lambda *words: checks.append(1) or prove(*words))
    for _ in range(2):
        next(trainer())
    assert len(checks) == 1
    assert SUBJECT.read().refusal == ""
    for other in ({"execution": "compiled"}, {"backbone": ""}, {"precision": "bf16"},
                  {"plugin": "a"}, {"method": "ce"}):  # fmt: skip
        assert SUBJECT._replace(**other).read() is None
    monkeypatch.setattr(torch, "__version__", "0")
    next(trainer())
    assert len(checks) == 2


def test_heads_are_proven_with_the_numbers_of_eager_heads(bank):
    slots = [small_spec(method="mac_cal", seed=k).head for k in range(2)]
    eager, proven = (HeadBatchTrainer(slots, bank, 0, CPU) for _ in range(2))
    subject = Subject.of("graph", slots[0])
    proven.executor = Proven(subject, proven._step, proven.changing, record=record)
    for reports in itertools.islice(zip(eager, proven, strict=True), 2):
        assert all(torch.equal(reports[0][name], reports[1][name]) for name in reports[0])
    assert (proven.executor.refusal, subject.read().difference) == ("", 0.0)


def test_a_plan_names_the_methods_whose_captured_steps_were_refused():
    spec = small_spec(method="mac_cal")
    assert list_refusals([spec]) == []
    Subject.of("graph", spec.network).write(SelfCheck())
    Subject.of("graph", spec.head).write(SelfCheck(refusal="it is slow"))
    assert list_refusals([spec, spec]) == ["graph of mac_cal: refused (it is slow)"]


def test_differences_are_shares_of_the_changes():
    start = {"big": torch.zeros(2), "still": torch.ones(3)}
    eager = {"big": torch.tensor([3.0, 4.0]), "still": torch.ones(3), "new": torch.ones(1)}
    captured = {**eager, "big": torch.tensor([3.0, 4.5])}
    assert find_difference(start, eager, captured) == ("big", pytest.approx(0.1))
    # Of a tensor that hardly changes, a hundredth of a typical change counts.
    captured = {**eager, "still": torch.full((3,), 1.001)}
    assert find_difference(start, eager, captured) == ("still", pytest.approx(0.1, rel=1e-3))
    assert find_difference(start, eager, eager) == ("", 0.0)
    name, share = find_difference(start, eager, {**eager, "big": torch.full((2,), math.nan)})
    assert name == "big"
    assert math.isnan(share)
    still = {"still": torch.ones(3), "too": torch.ones(1)}
    assert find_difference(still, still, {**still, "too": torch.zeros(1)}) == ("too", math.inf)
    counts = {"count": torch.tensor(3)}
    assert find_difference({}, counts, {"count": torch.tensor(4)}) == ("count", math.inf)
