"""The machine that computes numbers: its description, its precisions, and torch's switches.

These matter because a network that memorises noise amplifies one unit in the last place to about a
point of accuracy, and libraries choose the order of sums by the processor's instruction set.
"""

import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import torch

from tune_calib.determinism import PORTABLE, is_portable_process
from tune_calib.errors import UserError
from tune_calib.spec.slots.network import NetworkSlot, Precision
from tune_calib.spec.trial import TrialSpec

# Largest number of chunks of images that are evaluated at once, since each needs memory: up to 2 GB
# for a ResNet-50.
MOST_CHUNKS = 16

MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container

_cores = 1  # CPU cores that a pass over images may use

T = TypeVar("T")
R = TypeVar("R")


def machine() -> dict[str, str | None]:
    """Return processor, instruction set in use and GPU (None without one), as in result rows."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    instruction_set = torch.backends.cpu.get_cpu_capability()
    return {"processor": processor(), "instruction_set": instruction_set, "gpu": gpu}


@lru_cache
def processor() -> str:
    """Return the model name of the processor, or its architecture if the name is unknown."""
    # On Linux, platform.processor() returns the architecture at most.
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def environment_of(specs: Iterable[TrialSpec]) -> dict[str, str]:
    """Return the environment variables that processes of these trials need before loading torch."""
    # Actors are reused: one process, with one environment, runs trials of many specs.
    networks = [spec.network for spec in specs]
    portable = {network.portable for network in networks}
    if len(portable) > 1:
        raise UserError("network.portable must be the same in all trials of a run")
    variables = dict(PORTABLE) if True in portable else {}
    if any(network.deterministic for network in networks):
        # Without it, torch refuses matrix products on a GPU with deterministic algorithms.
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return variables


def require_environment(spec: TrialSpec) -> None:
    if not spec.network.portable:
        return
    # The variables alone prove nothing: torch reads them when it is loaded, perhaps before they
    # were set, and the processor may lack AVX2.
    if not is_portable_process() or torch.backends.cpu.get_cpu_capability() != "AVX2":
        wanted = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        raise UserError(
            f"network.portable needs {wanted} in the environment before torch is loaded, and an "
            "x86 processor with AVX2"
        )


def refuse_slow(precision: Precision, device: torch.device) -> None:
    """Raise, before anything starts, if a device is not fast in a precision."""
    if precision == "fp32":
        return
    if device.type == "cuda":
        # Ampere is the first generation with bfloat16 and TF32.
        is_fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        capabilities = torch.cpu.get_capabilities()
        has_bf16 = bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
        is_fast = precision == "bf16" and has_bf16
    if not is_fast:
        raise UserError(
            f"network.precision={precision} needs a GPU from Ampere on (or, for bf16, a CPU with "
            "AMX or AVX512-BF16); use network.precision=fp32"
        )


def set_switches(slot: NetworkSlot, device: torch.device) -> None:
    """Set torch's switches for a network, for the whole process, after ``refuse_slow``."""
    refuse_slow(slot.precision, device)
    on_gpu = device.type == "cuda"
    # Some backward passes have no deterministic kernel on a GPU; on a CPU, all that are used do.
    is_strict = slot.deterministic or not on_gpu
    mode = "default"
    if is_strict:
        mode = "error" if on_gpu else "warn"
    # The switch of use_deterministic_algorithms, but without importing torch's compiler.
    torch.set_deterministic_debug_mode(mode)
    if on_gpu:
        # By default, torch uses TF32 for convolutions only; fp32 here means IEEE.
        kind = "tf32" if slot.precision == "tf32" else "ieee"
        torch.backends.cuda.matmul.fp32_precision = kind
        torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = not slot.deterministic


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads, on which last digits depend, within a block."""
    previous_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous_count)


def count_cores() -> int:
    from joblib import cpu_count  # as scikit-learn counts them

    return int(cpu_count())


def memory_size() -> int:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # without a limit, it is the word ``max``
        size = min(size, int(MEMORY_LIMIT.read_text()))
    return size


def set_cores(count: int) -> None:
    global _cores
    _cores = count


def map_at_once(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the results of a function in the order of its items, several computed at once."""
    threads = torch.get_num_threads()
    at_once = min(MOST_CHUNKS, _cores // threads)
    if at_once <= 1:
        yield from map(function, items)
        return
    futures = deque[Future[R]]()
    # In a new thread, the first operation may otherwise run on all cores.
    with ThreadPoolExecutor(at_once, initializer=partial(torch.set_num_threads, threads)) as pool:
        for item in items:
            futures.append(pool.submit(function, item))
            if len(futures) > at_once:  # a bound on memory
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
