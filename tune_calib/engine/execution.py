"""Execution of a training step: eagerly, captured as a CUDA graph, or compiled and captured.

A step is a function of named inputs (images, learning rate, draws) that returns named tensors. It
may change other tensors (weights, moments) in place. Captured, it runs on static copies of its
inputs once, and its operations are repeated on them without Python.
"""

import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor

from tune_calib.errors import RefusedError, UserError
from tune_calib.models.network import Network
from tune_calib.progress import report_progress
from tune_calib.spec.slots.network import Execution

Inputs = dict[str, Any]  # tensors, or numbers if a step runs eagerly on a CPU
Tensors = dict[str, Tensor]
Step = Callable[[Inputs], Tensors]
Recording = tuple[Callable[[], None], Tensors]  # a function that repeats a step, and its outputs
Record = Callable[[Callable[[], Tensors]], Recording]
Prepare = Callable[[Callable[[], None]], AbstractContextManager[Any]]

WARM_UP = 3  # steps before the capture, in which libraries choose algorithms and allocate memory

# Steps of a training from which on ``auto`` compiles: twice as many as it took to make up for the
# compilation of ResNet-18, ResNet-50 and DenseNet-121 in a sketch on an H100.
LEAST_COMPILED = 50_000


def resolve_execution(
    requested: Execution, device: torch.device, is_capturable: bool, steps: int = 0
) -> Execution:
    """Return how a number of steps is executed, which is 0 if nothing can be compiled."""
    refuse_captured(requested, device.type == "cuda")
    if requested == "compiled" and not steps:
        return "graph"
    if requested != "auto":
        return requested
    if device.type != "cuda" or not is_capturable:
        return "eager"
    if steps < LEAST_COMPILED:
        return "graph"
    return "compiled" if can_compile() else "graph"


def refuse_captured(requested: Execution, has_gpu: bool) -> None:
    if requested in ("graph", "compiled") and not has_gpu:
        raise UserError(
            f"network.execution={requested} needs a GPU: set `gpus`, or use network.execution=auto"
        )


def can_compile() -> bool:
    # No public function tells it (torch 2.12 to 2.15).
    from torch.utils import _triton

    # Triton compiles C code, which includes Python's header. It is a package of its own on many
    # systems, and often not installed.
    header = Path(sysconfig.get_config_var("INCLUDEPY") or "", "Python.h")
    has_c = any(map(shutil.which, ("gcc", "clang")))
    return has_c and header.exists() and bool(_triton.has_triton())


def _weak(function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, MethodType):
        return function
    method: WeakMethod[Any] = WeakMethod(function)
    return lambda *arguments: method()(*arguments)  # type: ignore[misc]


class Eager:
    """Calls a step on the inputs that it is given.

    It does not keep the trainer alive whose method the step is, and which keeps it: in a circle,
    the memory of a finished training would not be free for the next one.
    """

    is_captured = False
    refusal = ""  # why steps are not captured as ``auto`` would

    def __init__(self, step: Step) -> None:
        self.step: Step = _weak(step)

    def __call__(self, inputs: Inputs) -> Tensors:
        return self.step(inputs)

    def forget(self) -> None:
        """Capture the step again, because it uses other tensors now."""


class Captured(Eager):
    """Captures a step at its first call, and repeats it in further ones.

    Inputs of another shape, such as a smaller last batch, run eagerly. ``state`` returns all
    tensors that the step changes, of which those that it creates must be 0 before its first call.
    """

    is_captured = True

    def __init__(
        self,
        step: Step,
        state: Callable[[], Tensors],
        prepare: Prepare | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(step)
        self.state: Callable[[], Tensors] = _weak(state)
        self.prepare, self.record = prepare or _warmed_up, record or record_graph
        self.inputs: Tensors = {}
        self.recording: Recording | None = None
        self.prepared: Any = None  # a compiled backbone, whose code the recording needs

    def forget(self) -> None:
        """Free the captured step, which uses other tensors now or is over; capture it again."""
        was_captured = self.recording is not None
        self.inputs, self.recording, self.prepared = {}, None, None
        if was_captured:
            # Nothing else uses the memory of a graph, and other processes may need it.
            torch.cuda.empty_cache()

    def __call__(self, inputs: Inputs) -> Tensors:
        repeat, outputs = self.recording or self._capture(inputs)
        if any(tensor.shape != self.inputs[name].shape for name, tensor in inputs.items()):
            return self.step(inputs)
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        repeat()
        return {name: tensor.clone() for name, tensor in outputs.items()}

    def _capture(self, inputs: Inputs) -> Recording:
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        step = partial(self.step, self.inputs)
        saved = {name: tensor.clone() for name, tensor in self.state().items()}
        gpus = {tensor.device for tensor in inputs.values() if tensor.is_cuda}
        warm_up = partial(_warm_up, step, bool(gpus))
        # Warm-up steps leave no trace: neither in random numbers nor in the tensors they change.
        try:
            with torch.random.fork_rng(devices=gpus), self.prepare(warm_up) as self.prepared:
                self.recording = recording = self.record(step)
        except torch.OutOfMemoryError:
            raise UserError(
                "the GPU has too little memory to capture a step: use a smaller batch, fewer "
                "trials on each GPU, or network.execution=eager"
            ) from None
        finally:
            self.restore(saved)
        return recording

    def restore(self, saved: Tensors) -> None:
        """Restore the tensors that steps change; those that they created become 0."""
        for name, tensor in self.state().items():
            if name in saved:
                tensor.copy_(saved[name])
            else:
                tensor.zero_()


@contextmanager
def _warmed_up(warm_up: Callable[[], None]) -> Iterator[None]:
    warm_up()
    yield


def _warm_up(step: Callable[[], Tensors], is_on_gpu: bool) -> None:
    if not is_on_gpu:
        step()
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # Adam warns that it is not being captured.
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def record_graph(step: Callable[[], Tensors]) -> Recording:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            outputs = step()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        # After an error in the step, the end of the capture raises another one, which tells less.
        first = error.__context__ or error
        if isinstance(first, torch.OutOfMemoryError):
            raise first from None
        raise RefusedError(
            f"a step cannot be captured as a CUDA graph ({first_line(first)}): use "
            "network.execution=eager, or declare is_capturable = False in your method"
        ) from error
    return graph.replay, outputs


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def describe_execution(execution: Execution, executor: Eager) -> str:
    return f"{execution}: refused ({executor.refusal})" if executor.refusal else execution


def as_inputs(
    numbers: Sequence[float], executor: Eager, device: torch.device
) -> Sequence[float] | Tensor:
    """Return numbers of consecutive steps; as tensors on a GPU and for captured steps."""
    # A captured step would repeat a number. On a CPU, rounding it would change last digits.
    if device.type == "cpu" and not executor.is_captured:
        return numbers
    return torch.tensor(numbers, device=device)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for a GPU."""
    # Not by equality: ``cuda`` and ``cuda:0`` differ, although they are the same GPU.
    if tensor.is_cuda or device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@contextmanager
def compiling(network: Network, name: str, warm_up: Callable[[], None]) -> Iterator[Any]:
    """Compile a network's backbone, by the warm-up, for the steps in the block."""
    # Private, but the only names of what a compiler raises (torch 2.12 to 2.15).
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    report_progress(f"compiling {name}")
    with ExitStack() as stack:
        try:
            backbone = stack.enter_context(network.compiled())
            # The same switch as before, which the compiler now reads too.
            torch.use_deterministic_algorithms(
                torch.are_deterministic_algorithms_enabled(),
                warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            )
            warm_up()
        except (OSError, TorchDynamoException, FailOnRecompileLimitHit) as error:
            reason = first_line(getattr(error, "inner_exception", error))
            raise RefusedError(
                f"cannot compile {name} ({reason}): free space for compiled code "
                "(TORCHINDUCTOR_CACHE_DIR), or use network.execution=graph"
            ) from error
        yield backbone
