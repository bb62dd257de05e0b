"""Captured steps without a GPU: a tape that repeats operations, and a guard for them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# The documented way to see all operations, although its module is private (torch 2.12 to 2.15).
from torch.utils._python_dispatch import TorchDispatchMode

from tune_calib.conformance.bench import FailedCheckError, require
from tune_calib.engine.execution import Captured, Recording, Tensors
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.methods._base import HeadContext

META = torch.device("meta")


class Tape(TorchDispatchMode):
    """Records the operations of a step, to repeat them on the same tensors without Python code."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Callable[[], Any], list[Tensor]]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        call = partial(function, *args, **(kwargs or {}))
        outputs = call()
        # Not those that only change the shape of a tensor, which the aliases keep.
        if torch.Tag.inplace_view not in function.tags:
            self.calls.append((call, [tensor.detach() for tensor in _tensors_in(outputs)]))
        return outputs

    @torch.no_grad()
    def repeat(self) -> None:
        for call, outputs in self.calls:
            for old, new in zip(outputs, _tensors_in(call()), strict=True):
                # Views and tensors changed in place are the recorded ones.
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _tensors_in(outputs: Any) -> list[Tensor]:
    parts = outputs if isinstance(outputs, tuple | list) else [outputs]
    return [part for part in parts if isinstance(part, Tensor)]


def record(step: Callable[[], Tensors]) -> Recording:
    with Tape() as tape:
        outputs = step()
    return tape.repeat, outputs


def capture(trainer: NetworkTrainer | HeadBatchTrainer) -> None:
    trainer.executor = Captured(trainer.executor.step, trainer.changing, record=record)


_COPIES = "its step copies numbers into a new tensor, as torch.tensor does"


class _FunctionGuard(TorchFunctionMode):
    """Refuses ``torch.tensor``, which torch dispatches on the meta device only from 2.15 on."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        require(function not in (torch.tensor, Tensor.new_tensor), _COPIES)
        return function(*args, **(kwargs or {}))


class _Guard(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        outputs = function(*args, **(kwargs or {}))
        require(function is not torch.ops.aten.lift_fresh.default, _COPIES)
        for tensor in _tensors_in(outputs):
            is_created = tensor.device != META
            require(not is_created, f"its step creates a tensor on the CPU, by {function}")
        return outputs


@contextmanager
def guarded() -> Iterator[None]:
    try:
        with _FunctionGuard(), _Guard():  # type: ignore[no-untyped-call]
            yield
    except RuntimeError as error:  # on this device, tensors have no data
        raise FailedCheckError(
            "its step reads a number of a tensor, or has a shape that depends on one "
            f"({str(error).splitlines()[0]})"
        ) from error


def to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(META).requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):
        return {key: to_meta(part) for key, part in value.items()}
    if isinstance(value, HeadContext):
        weight, bias = to_meta(value.weight), to_meta(value.bias)
        return replace(value, weight=weight, bias=bias, device=META)
    return value
