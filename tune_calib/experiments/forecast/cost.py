"""What a training step costs, counted on tensors without data, and how long a GPU takes for it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tune_calib.engine.network import EVALUATION_BATCH, build
from tune_calib.methods._base import Batch, NetworkMethod
from tune_calib.models.network import Network
from tune_calib.spec.gpus import Gpu
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.network import Precision
from tune_calib.spec.trial import TrialSpec

SHARE = 0.45
"""Of the stated peaks that a training reaches. One number for all GPUs, networks and precisions: by
it come out MaC-Cal's seconds on an A40 (its table 4, four networks, within 6 %) and NVIDIA's own
ResNet-50 on ImageNet on an A100 (TF32 3 % too short, mixed precision a quarter too long) and a V100
(three quarters too long); docs/pages/sweep-files.md#a-named-gpu."""

LAUNCH_S = 5e-6
"""Seconds that a kernel takes at least, at the peak."""

HEAD_KERNELS = 100
"""Kernels of a step of a population of heads; its products are too small to count."""

META = torch.device("meta")


class Cost(TorchDispatchMode):
    """Counts, of each operation that is run under it, its products and the bytes that it touches.

    Attributes:
        operations: floating-point operations and bytes of each.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count it unless it is a view, which computes nothing."""
        named = kwargs or {}
        out = function(*args, **named)
        if not function.is_view:
            count = flop_registry.get(function._overloadpacket)
            flops = count(*args, **named, out_val=out) if count else 0
            touched = (t for t in tree_leaves((args, named, out)) if isinstance(t, Tensor))
            self.operations.append((flops, sum(tensor.nbytes for tensor in touched)))
        return out

    @property
    def flops(self) -> int:
        """Floating-point operations of all."""
        return sum(flops for flops, _ in self.operations)

    def seconds(self, gpu: Gpu, precision: Precision) -> float:
        """Seconds on a GPU: of each operation the longest of its products, bytes and launch."""
        peak, bandwidth = gpu.peak(precision), gpu.bandwidth * 1e9
        # Maps of bfloat16 are half as large.
        width = 0.5 if precision == "bf16" else 1.0
        return _sum(
            max(flops / peak, width * touched / bandwidth, LAUNCH_S)
            for flops, touched in self.operations
        )


def _sum(seconds: Iterable[float]) -> float:
    return sum(seconds) / SHARE


def counted_as(method: str) -> str:
    """The method whose step is counted: losses on the logits of one pass cost next to nothing."""
    own: type[NetworkMethod] = METHODS[method].implementation
    return "ce" if own.step is NetworkMethod.step else method


def step_cost(spec: TrialSpec) -> Cost | None:
    """A training step of a network, forward and backward; None if it needs the data itself."""
    size = spec.network.batch_size
    network, method = _on_meta(spec, counted_as(spec.network.method))
    network.train()
    method.train()
    labels = torch.zeros(size, dtype=torch.long, device=META)
    batch = Batch(_images(spec, size), labels, torch.zeros_like(labels))
    method.begin_epoch(0, torch.Generator().manual_seed(0))
    cost = Cost()
    try:
        with cost:
            method.step(network, batch).loss.backward()
    except (NotImplementedError, RuntimeError):
        return None
    return cost


@torch.no_grad()
def image_cost(spec: TrialSpec) -> Cost:
    """A batch of ``EVALUATION_BATCH`` images through a network that is trained."""
    network, _ = _on_meta(spec, "ce")
    network.eval()
    cost = Cost()
    with cost:
        network(_images(spec, EVALUATION_BATCH))
    return cost


def made(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    """Network and method as ``build`` makes them, without the numbers of their tensors."""
    with META:
        return build(spec, samples)


def _on_meta(spec: TrialSpec, method: str) -> tuple[Network, NetworkMethod]:
    """Network and method without data; what is counted is the same in each precision."""
    own = {"method", "params", "plugin", "seed", "precision", "compile"}
    slot = spec.network.model_dump(exclude=own) | {"method": method}
    # Samples that a method keeps something for are no part of a step.
    network, own_method = made(TrialSpec.build(data=spec.data.model_dump(), network=slot), 1)
    return network.to(META), own_method.to(META)


def _images(spec: TrialSpec, count: int) -> Tensor:
    info = spec.data.info
    shape = (count, info.channels, info.size, info.size)
    return torch.empty(shape, device=META).to(memory_format=torch.channels_last)
