"""What a GPU refuses, as rules that an operation must pass before it is computed."""

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
GPU = torch.device("cuda", 0)

TRANSFERS = {aten._to_copy.default, aten.copy_.default}
INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
SELECTING = {aten.where.self, aten.where.self_out}
FUSED = {aten._fused_sgd_, aten._fused_adam_, aten._fused_adamw_}
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}

# Operations that wait for the GPU: those whose result or its shape depends on data, and others.
WAITING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
WAITING = {
    aten.is_nonzero.default,
    aten.multinomial.default,
    aten.linalg_eigh.default,
    aten._linalg_eigh.default,
    aten._linalg_svd.default,
    aten._linalg_check_errors.default,
}

# As torch.use_deterministic_algorithms lists them.
NOT_DETERMINISTIC = {
    aten._adaptive_avg_pool2d_backward.default,
    aten._adaptive_avg_pool3d_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.avg_pool3d_backward.default,
    aten.fractional_max_pool2d_backward.default,
    aten.grid_sampler_2d_backward.default,
    aten.histc.default,
    aten.median.dim,
    aten.nll_loss2d_forward.default,
    aten.put_.default,
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.upsample_bicubic2d_backward.default,
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_linear1d_backward.default,
}


class Generator(torch.Generator):
    """A generator of the CPU or the GPU, whose numbers also come from the CPU, but are others."""

    place: torch.device
    seeds_on_gpu: ClassVar[set[int]] = set()

    def __new__(cls, device: torch.device | str = "cpu"):
        generator = super().__new__(cls)
        generator.place = torch.device(device)
        return generator.manual_seed(generator.initial_seed())

    @property
    def device(self) -> torch.device:
        return self.place

    def manual_seed(self, seed: int) -> "Generator":
        if is_on_gpu(self.place):
            seed ^= 1 << 62
            self.seeds_on_gpu.add(seed)
        super().manual_seed(seed)
        return self


@dataclass(frozen=True)
class Call:
    """An operation with its arguments, of which some are on the GPU."""

    operation: OpOverload
    args: tuple
    kwargs: dict[str, Any]
    on_gpu: list[Tensor]
    on_host: list[Tensor]
    is_capturing: bool

    def argument(self, name: str) -> Any:
        """Return an argument by its name in the schema; None if it is left out."""
        for place, argument in enumerate(self.operation._schema.arguments):
            if argument.name == name and place < len(self.args):
                return self.args[place]
        return self.kwargs.get(name)

    def takes_data(self) -> bool:
        """Return whether it reads its tensors, and not only their shapes as ``zeros_like`` does."""
        name = self.operation._schema.name
        return not (name.startswith("aten::new_") or name.endswith("_like"))

    def wait(self, reason: str) -> None:
        """Refuse to wait for the GPU while a graph is captured, or where no wait is allowed."""
        if self.is_capturing:
            raise RuntimeError(
                f"CUDA error: operation not permitted when stream is capturing ({reason})"
            )
        if torch.cuda.get_sync_debug_mode():
            raise RuntimeError(f"called a synchronizing CUDA operation ({reason})")


def is_on_gpu(device: torch.device | str | None) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def is_pinned(tensor: Tensor) -> bool:
    base = tensor._base
    return getattr(tensor, "is_held_in_place", False) or (base is not None and is_pinned(base))


def refuse_waits_for_results(call: Call) -> None:
    """Numbers and shapes that depend on data make the program wait."""
    operation = call.operation
    if operation not in INDEXED:
        if operation in WAITING or WAITING_TAGS.intersection(operation.tags):
            call.wait(str(operation))
    else:
        indices = [index for index in call.args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            call.wait(f"{operation} with a mask")


def refuse_waits_for_copies(call: Call) -> None:
    """A copy to the CPU waits, and so does one from it, unless its memory is pinned."""
    if call.operation not in TRANSFERS:
        return
    target, source = call.argument("self"), call.argument("src")
    place, is_prompt = target.device, call.argument("non_blocking")
    if source is None:
        source, place = target, torch.device(call.argument("device") or target.device)
    if is_on_gpu(source.device) and not is_on_gpu(place):
        call.wait("a copy to the CPU")
    if is_on_gpu(place) and not is_on_gpu(source.device) and not (is_prompt and is_pinned(source)):
        call.wait("a copy from memory that is not pinned")


def refuse_two_devices(call: Call) -> None:
    """Tensors must be on one device, but for single numbers and indices."""
    if call.operation in TRANSFERS or not call.takes_data():
        return
    for tensor in call.on_host:
        if tensor.dim() == 0:
            if call.operation in SELECTING:
                call.wait("a single number on the CPU in where()")
        elif call.operation in INDEXED and tensor is not call.args[0]:
            call.wait("an index on the CPU")
        else:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! ({call.operation}, {tuple(tensor.shape)} on the CPU)"
            )


def refuse_foreign_generators(call: Call) -> None:
    """Random numbers need a generator of the GPU, which no graph knows but the default one."""
    generator = call.argument("generator")
    if generator is None:
        return
    # Operations receive another object for the same generator, which has its seed alone.
    if generator.initial_seed() not in Generator.seeds_on_gpu:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if call.is_capturing:
        raise RuntimeError("Attempt to increase offset for a CUDA generator not in capture mode.")


def refuse_unlike_layouts(call: Call) -> None:
    """A fused optimiser takes lists of tensors of equal shapes and strides."""
    if call.operation.overloadpacket not in FUSED:
        return
    rate = call.argument("lr")
    if isinstance(rate, Tensor) and not is_on_gpu(rate.device):
        raise RuntimeError("lr must be on the same GPU device as the params")
    parameters = call.argument("self")
    for argument in call.operation._schema.arguments:
        tensors = call.argument(argument.name)
        if argument.name == "state_steps" or not isinstance(tensors, list | tuple):
            continue
        for parameter, tensor in zip(parameters, tensors, strict=bool(tensors)):
            if layout(parameter) != layout(tensor):
                raise RuntimeError(
                    "Expected at::native::check_fast_path_restrictions({params, grads, "
                    f"{argument.name}}}) to be true, but got false. (strides "
                    f"{parameter.stride()} and {tensor.stride()})"
                )


def layout(tensor: Tensor) -> list[tuple[int, int]]:
    """Return size and stride of each dimension, but for those of one entry."""
    return [pair for pair in zip(tensor.shape, tensor.stride(), strict=True) if pair[0] != 1]


def refuse_chance_in_sums(call: Call) -> None:
    """Some operations have no deterministic kernel, and products only one with a work space."""
    if torch.get_deterministic_debug_mode() != 2:  # an error
        return
    operation, weights = call.operation, call.argument("weights")
    is_weighted = operation is aten.bincount.default and weights is not None
    if operation in NOT_DETERMINISTIC or is_weighted:
        raise RuntimeError(
            f"{operation} does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'"
        )
    if operation in PRODUCTS and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        raise RuntimeError("to enable deterministic behavior, set CUBLAS_WORKSPACE_CONFIG=:4096:8")


RULES = (
    refuse_two_devices,
    refuse_waits_for_results,
    refuse_waits_for_copies,
    refuse_foreign_generators,
    refuse_unlike_layouts,
    refuse_chance_in_sums,
)
