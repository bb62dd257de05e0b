"""The emulated GPU itself: it repeats right steps and refuses wrong ones."""

import re
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.gpu.device import KNOWN_TORCH, Graph
from tests.gpu.process import on_device
from tune_calib.engine.execution import Captured
from tune_calib.errors import RefusedError

CUDA = torch.device("cuda")


def test_the_tested_torch_is_the_one_whose_gpu_is_emulated():
    constraints = Path(__file__).parents[2] / "constraints.txt"
    assert f"\ntorch=={KNOWN_TORCH}\n" in constraints.read_text("utf-8")


def captured(step) -> Captured:
    """A captured step of numbers (3,) that changes nothing else."""
    executor = Captured(step, dict)
    executor({"x": torch.ones(3, device=CUDA)})
    return executor


@on_device
def test_a_captured_step_is_repeated_on_new_inputs():
    factor, calls = torch.tensor([1.0, 2.0, 3.0], device=CUDA), []
    executor = captured(lambda inputs: calls.append(1) or {"y": inputs["x"] * factor})
    count = len(calls)
    for number in (2.0, 5.0):
        outputs = executor({"x": torch.full((3,), number, device=CUDA)})
        assert outputs["y"].tolist() == [number, 2 * number, 3 * number]
    factor.fill_(0.5)
    assert executor({"x": torch.ones(3, device=CUDA)})["y"].tolist() == [0.5] * 3
    assert len(calls) == count


WRONG_STEPS = {
    "reads a number": lambda x: x * float(x.sum()),
    "has a shape that depends on data": lambda x: x[x > 0],
    "copies to the CPU": lambda x: x.cpu(),
    "copies from the CPU": lambda x: x + torch.arange(3).to(CUDA),
    "creates a tensor of numbers": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=CUDA),
    "reads a tensor on the CPU": lambda x: x + torch.ones(3),
    "is indexed by the CPU": lambda x: x[torch.tensor([0, 2])],
    "draws from a generator": lambda x: x * torch.rand(
        3, device=CUDA, generator=torch.Generator(CUDA)
    ),
    "waits": lambda x: torch.cuda.synchronize() or x,
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG_STEPS)
@on_device
def test_a_captured_step_is_refused_if_it(fault):
    graph, x = torch.cuda.CUDAGraph(), torch.ones(3, device=CUDA)
    with pytest.raises(RuntimeError) as refused, torch.cuda.graph(graph):
        WRONG_STEPS[fault](x)
    assert "previous error during capture" in str(refused.value)
    cause = str(refused.value.__context__)
    assert re.search("capturing|capture mode|two devices", cause), cause
    with pytest.raises((RefusedError, RuntimeError), match=r"CUDA graph|two devices"):
        captured(lambda inputs: {"y": WRONG_STEPS[fault](inputs["x"])})


@on_device
def test_a_repeated_step_whose_tensor_was_dropped_is_refused():
    held = {"factor": torch.full((3,), 2.0, device=CUDA)}
    executor = captured(lambda inputs: {"y": inputs["x"] * held["factor"]})
    held["factor"] = torch.full((3,), 4.0, device=CUDA)
    with pytest.raises(RuntimeError, match="reads memory that the program dropped"):
        executor({"x": torch.ones(3, device=CUDA)})


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
@on_device
def test_a_fused_optimiser_refuses_moments_of_other_strides(kind):
    layer = nn.Conv2d(3, 4, 3).to(CUDA).to(memory_format=torch.channels_last)
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(layer.parameters(), lr=0.1, fused=True, **options)
    for contiguous in (False, True):
        layer(torch.ones(2, 3, 5, 5, device=CUDA)).sum().backward()
        if not contiguous:
            optimizer.step()
    for moments in optimizer.state.values():
        for name, moment in moments.items():
            moments[name] = moment.contiguous()
    with pytest.raises(RuntimeError, match="check_fast_path_restrictions"):
        optimizer.step()


@on_device
def test_devices_are_not_mixed():
    x = torch.ones(3, device=CUDA)
    assert (x * torch.tensor(2.0)).tolist() == [2.0] * 3  # a single number may be on the CPU
    assert x.device == torch.device("cuda", 0)
    assert x.cpu().device.type == "cpu"
    assert x.to(CUDA) is x
    with pytest.raises(RuntimeError, match="two devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(3, device=CUDA, generator=torch.Generator())
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        x.numpy()


@on_device
def test_a_deterministic_program_needs_deterministic_kernels():
    maps = torch.ones(2, 3, 4, 4, device=CUDA, requires_grad=True)
    torch.set_deterministic_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            nn.functional.adaptive_max_pool2d(maps, 1).sum().backward()
    finally:
        torch.set_deterministic_debug_mode("default")
    nn.functional.adaptive_max_pool2d(maps, 1).sum().backward()


@on_device
def test_a_wait_is_an_error_where_torch_is_told_so():
    x = torch.ones(3, device=CUDA)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.ones(3).pin_memory().to(CUDA, non_blocking=True)
        for wait in (x.sum().item, x.cpu, lambda: torch.ones(3).to(CUDA)):
            with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
                wait()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_device
def test_memory_is_free_when_no_tensor_and_no_graph_uses_it():
    x = torch.ones(3, device=CUDA)
    memory, view = weakref.ref(x.memory), x[1:]
    del x
    assert memory() is view.memory
    del view
    assert memory() is None
    graph = Graph()
    assert not graph.calls
