"""A GPU emulated on the CPU, which refuses what a real one would refuse.

``install`` makes torch believe in one GPU, for the whole process. Tensors on it are wrappers of CPU
tensors, with which each operation is computed after ``rules`` allow it. A graph is a list of
operations on these tensors. There are no kernels, streams, limits of memory or times: neither
speed nor last digits are those of a GPU, and nothing can be compiled.
"""

import ctypes
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _foreach_utils
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from tests.gpu.rules import GPU, RULES, Call, Generator, is_on_gpu, is_pinned

KNOWN_TORCH = "2.15.0"  # its hooks and private functions are used here

MEMORY_BYTES = 80 * 10**9


class Memory:
    """Memory of the GPU that a tensor of the program uses."""

    __slots__ = ("__weakref__",)


memories = weakref.WeakValueDictionary[int, Memory]()
"""What the program holds, by address."""


def address(host: Tensor) -> int:
    return host.untyped_storage().data_ptr()


class DeviceTensor(Tensor):
    """A tensor on the GPU; ``host`` holds its numbers."""

    host: Tensor
    memory: Memory
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor):
        tensor = Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=GPU,
        )
        tensor.host = host
        tensor.memory = memories.setdefault(address(host), Memory())
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *_, **__) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    __array__ = numpy

    def __repr__(self, **_) -> str:
        return f"{self.host}, on the GPU"

    def __format__(self, form: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), form)


class Graph:
    """Operations of a captured step, to be repeated on the same memory."""

    capturing: "Graph | None" = None

    def __init__(self, keep_graph: bool = False) -> None:
        self.reset()

    def reset(self) -> None:
        self.calls: list[tuple[OpOverload, tuple, dict, list[Tensor]]] = []
        self.own = set[int]()  # addresses of what the operations create
        self.foreign: dict[int, tuple[weakref.ref[Memory], str]] = {}  # and of what they read

    def add(self, operation: OpOverload, args: tuple, kwargs: dict, results: Any) -> None:
        """Record an operation on CPU tensors, and what it returned."""
        args, kwargs = tree_map_only(Tensor, self._keep, (args, kwargs))
        for tensor in tensors_in((args, kwargs)):
            memory = memories.get(address(tensor))
            if memory is not None and address(tensor) not in self.own:
                read = f"{operation} of {tuple(tensor.shape)}"
                self.foreign.setdefault(address(tensor), (weakref.ref(memory), read))
        outputs = [tensor.detach() for tensor in tensors_in(results)]
        self.own.update(address(output) for output in outputs if address(output) not in memories)
        self.calls.append((operation, args, kwargs, outputs))

    def _keep(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the GPU; copy one on the CPU, which a kernel takes as a number."""
        is_on_gpu = address(tensor) in memories or address(tensor) in self.own
        return tensor if is_on_gpu else tensor.clone()

    @torch.no_grad()
    def replay(self) -> None:
        """Repeat all operations, unless the program dropped what they read."""
        dropped = [read for memory, read in self.foreign.values() if memory() is None]
        if dropped:
            raise RuntimeError(f"a graph reads memory that the program dropped: {dropped}")
        for operation, args, kwargs, outputs in self.calls:
            results = tensors_in(operation(*args, **kwargs))
            for output, result in zip(outputs, results, strict=True):
                if address(output) != address(result):
                    output.copy_(result)


def tensors_in(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class Capture:
    """Records what its block computes; after an error, its end fails too, as that of CUDA does."""

    def __init__(self, graph: Graph, *_: Any, **__: Any) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        if Graph.capturing is not None:
            raise RuntimeError("a graph is already being captured")
        Graph.capturing = self.graph

    def __exit__(self, kind: type | None, *_: Any) -> None:
        Graph.capturing = None
        if kind is not None:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )


def compute(operation: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the GPU if an argument is there, or what it returns shall be."""
    leaves, structure = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    on_gpu = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
    returns_on_gpu = is_on_gpu(kwargs.get("device")) if kwargs.get("device") else bool(on_gpu)
    if not on_gpu and not returns_on_gpu:
        return compute_on_cpu(operation, args, kwargs)
    on_cpu = [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor)]
    graph = Graph.capturing
    call = Call(operation, args, kwargs, on_gpu, on_cpu, graph is not None)
    for refuse in RULES:
        refuse(call)
    host_leaves = [leaf.host if isinstance(leaf, DeviceTensor) else leaf for leaf in leaves]
    host_args, host_kwargs = tree_unflatten(host_leaves, structure)
    if "device" in host_kwargs:
        host_kwargs["device"] = torch.device("cpu")
    for name in {"pin_memory", "non_blocking"} & host_kwargs.keys():
        host_kwargs[name] = False
    results = operation(*host_args, **host_kwargs)
    if torch.Tag.inplace_view in operation.tags:
        change_shape(operation, args, kwargs)
        return args[0]
    if graph is not None:
        graph.add(operation, host_args, host_kwargs, results)
    if not returns_on_gpu:
        return results
    arguments = {id(tensor.host): tensor for tensor in on_gpu}

    def wrap(result: Tensor) -> Tensor:
        # An operation returns what it changes.
        return arguments[id(result)] if id(result) in arguments else DeviceTensor(result)

    return tree_map_only(Tensor, wrap, results)


def change_shape(operation: OpOverload, args: tuple, kwargs: dict[str, Any]) -> None:
    """Change shape and strides of a wrapper, which has no data, as those of its numbers."""
    has_meta = torch._C._meta_in_tls_dispatch_include()
    torch._C._set_meta_in_tls_dispatch_include(True)
    try:
        with no_dispatch():
            operation(*args, **kwargs)
    finally:
        torch._C._set_meta_in_tls_dispatch_include(has_meta)


def compute_on_cpu(operation: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU; a new tensor may be in pinned memory."""
    if not kwargs.get("pin_memory"):
        return operation(*args, **kwargs)
    return pin(operation(*args, **{**kwargs, "pin_memory": False}))


def pin(tensor: Tensor) -> Tensor:
    copy = tensor.clone()
    copy.is_held_in_place = True
    return copy


class Everywhere(TorchDispatchMode):
    """Also computes what has no argument on the GPU, such as new tensors there."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


class Stream:
    """A stream or an event: all work is done when the program goes on."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take any options."""

    def is_capturing(self) -> bool:
        return Graph.capturing is not None

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: "Stream") -> float:
        return 0.0

    def synchronize(self, *_: Any) -> None:
        if self.is_capturing():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def do_nothing(self, *_: Any) -> None:
        """Wait for what is done."""

    wait_stream = wait_event = record_event = record = wait = do_nothing


class SyncDebugMode:
    """Whether a wait for the GPU is an error."""

    value = 0

    def set(self, mode: str | int) -> None:
        self.value = {"default": 0, "warn": 0, "error": 2}.get(mode, mode)

    def get(self) -> int:
        return self.value


def cuda_functions() -> dict[str, Any]:
    """Return what replaces the functions and classes of ``torch.cuda``."""
    debug = SyncDebugMode()
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", total_memory=MEMORY_BYTES, major=9, minor=0
    )
    free = MEMORY_BYTES // 2
    constants = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "mem_get_info": (free, MEMORY_BYTES),
        **dict.fromkeys(("memory_allocated", "max_memory_allocated"), 10**9),
        **dict.fromkeys(("memory_reserved", "max_memory_reserved"), 2 * 10**9),
        **dict.fromkeys(("_lazy_init", "empty_cache", "reset_peak_memory_stats"), None),
        # The GPU's default generator is that of the CPU.
        **dict.fromkeys(("manual_seed", "manual_seed_all"), None),
    }
    functions = {name: lambda *_, value=value, **__: value for name, value in constants.items()}
    return functions | {
        "CUDAGraph": Graph,
        "graph": Capture,
        "is_current_stream_capturing": Stream().is_capturing,
        "Stream": Stream,
        "Event": Stream,
        "stream": lambda stream: nullcontext(),
        "current_stream": Stream,
        "synchronize": Stream().synchronize,
        "set_sync_debug_mode": debug.set,
        "get_sync_debug_mode": debug.get,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }


def install(hooks: Path) -> None:
    """Let torch use the emulated GPU from now on; ``hooks`` is the compiled hooks.cpp."""
    ctypes.CDLL(str(hooks)).use_one_gpu()
    torch._C._ensureCUDADeviceGuardSet()
    # As tensors of another class, parameters cannot be moved in place.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    _foreach_utils._foreach_supported_types.append(DeviceTensor)
    for name, function in cuda_functions().items():
        setattr(torch.cuda, name, function)
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    torch.accelerator.current_stream = Stream
    torch.Generator = Generator
    Tensor.pin_memory = lambda tensor, *_: pin(tensor)
    Tensor.is_pinned = lambda tensor, *_: is_pinned(tensor)
    Tensor.record_stream = lambda tensor, stream: None
    Everywhere().__enter__()
