"""Heads with a leading head axis: K multi-layer perceptrons with stacked weights."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tune_calib.determinism import child_seed

Activation = Literal["relu", "gelu", "none"]

HeadShape = Literal["linear", "bottleneck"]


def init_stack(
    sizes: Sequence[int], seeds: Sequence[int], device: torch.device
) -> dict[str, Tensor]:
    """Draw the weights of K MLPs from U(±1/sqrt(fan_in)), as ``torch.nn.Linear`` does.

    The weights of head k depend only on ``sizes``, from features to logits, and ``seeds[k]``.
    Returns leaf tensors ``{"0.weight": (K, out, in), "0.bias": (K, 1, out), "1.weight": ...}``.
    """
    stack: dict[str, list[Tensor]] = {}
    # Head by head, and without nn.Linear, which uses the global generator: with one draw for all
    # heads, the weights of a head would depend on their number.
    for seed in seeds:
        generator = torch.Generator().manual_seed(child_seed(seed, "init"))
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            bound = fan_in**-0.5
            weight = torch.rand(fan_out, fan_in, generator=generator)
            bias = torch.rand(1, fan_out, generator=generator)
            stack.setdefault(f"{layer}.weight", []).append((2 * weight - 1) * bound)
            stack.setdefault(f"{layer}.bias", []).append((2 * bias - 1) * bound)
    return {name: torch.stack(parts).to(device).requires_grad_() for name, parts in stack.items()}


def apply_stack(
    parameters: dict[str, Tensor], features: Tensor, activations: Sequence[Activation]
) -> Tensor:
    """Return the logits (K, B, C) of K MLPs by batched matrix products.

    One ``bmm`` per layer on one thread gives the same bits for head k for every K. A single flat
    product over all heads would not, and is no faster. ``features`` are (B, D), shared by all
    heads, or (K, B, D). ``activations`` follow the hidden layers; further ones are ignored.
    """
    tensors = list(parameters.values())
    # A view, so that K heads share one tensor.
    hidden = features.expand(tensors[0].shape[0], *features.shape[-2:])
    for layer, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        activation = activations[layer - 1] if layer else "none"
        if activation == "relu":
            # In place: its gradient only needs to know where the output is zero.
            hidden = hidden.relu_()
        elif activation == "gelu":
            hidden = F.gelu(hidden)
        hidden = _Linear.apply(hidden, weight, bias)
    return hidden


class _Linear(torch.autograd.Function):
    """K linear layers with a hand-written gradient.

    It equals that of autograd for ``baddbmm`` to the last bit, but needs fewer passes over memory:
    autograd copies the gradient of a transposed weight into the memory order of the weight.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return outputs (K, B, out) of inputs (K, B, in)."""
        ctx.save_for_backward(inputs, weight)
        return torch.baddbmm(bias, inputs, weight.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        inputs, weight = ctx.saved_tensors
        of_inputs = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        heads, batch, outputs = gradient.shape
        sizes = min(heads, 2), batch, outputs, inputs.shape[2]
        if gradient.device.type != "cpu" or _sums_alike(*sizes):
            of_weight = torch.bmm(gradient.transpose(1, 2), inputs)
        else:
            of_weight = torch.empty(weight.shape, dtype=gradient.dtype)
            # One by one: torch copies a transposed matrix in blocks, but a stack of them entry by
            # entry.
            transposed = torch.bmm(inputs.transpose(1, 2), gradient)
            for head_gradient, head_transposed in zip(of_weight, transposed, strict=True):
                head_gradient.copy_(head_transposed.T)
        return of_inputs, of_weight, gradient.sum(1, keepdim=True)


@lru_cache(maxsize=4096)
def _sums_alike(heads: int, batch: int, outputs: int, inputs: int) -> bool:
    """Return whether the gradient of the weights equals its transposed form to the last digit.

    Results of all earlier versions were computed in the transposed form. The order in which a
    processor's matrix library sums depends only on the shapes.
    """
    chance = torch.Generator().manual_seed(0)
    g = torch.randn(heads, batch, outputs, generator=chance)
    x = torch.randn(1, batch, inputs, generator=chance).expand(heads, -1, -1)
    direct = torch.bmm(g.transpose(1, 2), x)
    return torch.equal(direct, torch.bmm(x.transpose(1, 2), g).transpose(1, 2))
