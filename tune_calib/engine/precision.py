"""What a processor or GPU can compute fast, and the switches of torch that a network asks for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tune_calib.errors import UserError
from tune_calib.spec.slots.network import NetworkSlot, Precision

AMPERE = (8, 0)
"""Compute capability from which on a GPU has bfloat16 and TF32."""


def refuse_slow(precision: Precision, device: torch.device) -> None:
    """Refuse a precision that a device does not compute fast, before anything starts."""
    if precision == "fp32" or _has(precision, device):
        return
    kind = "GPU" if device.type == "cuda" else "processor"
    need = {
        "bf16": "bfloat16 (a CPU with AMX or AVX512-BF16, or a GPU from Ampere on)",
        "tf32": "TF32 (a GPU from Ampere on)",
    }[precision]
    raise UserError(
        f"network.precision={precision} needs a device with fast {need}; this {kind} has "
        "none: take network.precision=fp32"
    )


def take_up(slot: NetworkSlot, device: torch.device) -> None:
    """Set torch's switches for a network, for the whole process; as ``refuse_slow``."""
    refuse_slow(slot.precision, device)
    on_gpu = device.type == "cuda"
    # Some backward passes have no deterministic kernel: on a CPU none of those is in use.
    is_strict = slot.deterministic or not on_gpu
    if slot.compile:
        torch.use_deterministic_algorithms(is_strict, warn_only=not on_gpu)
    else:  # the same switch, without the second that importing torch's compiler takes
        strictness = "error" if on_gpu else "warn"
        torch.set_deterministic_debug_mode(strictness if is_strict else "default")
    if on_gpu:
        # torch takes TF32 for convolutions by default: what is called fp32 here is.
        kind = "tf32" if slot.precision == "tf32" else "ieee"
        torch.backends.cuda.matmul.fp32_precision = kind
        torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = not slot.deterministic


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Use so many torch threads, on which last digits depend, within a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has(precision: Precision, device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= AMPERE
    capabilities = torch.cpu.get_capabilities()
    return precision == "bf16" and bool(
        capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    )
