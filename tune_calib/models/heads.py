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


def layer_sizes(
    shape: HeadShape, width: int, classes: int, bottleneck: int | None
) -> tuple[int, ...]:
    """Return the widths from features to logits; the bottleneck has width D/4 by default."""
    if shape == "linear":
        return (width, classes)
    return (width, bottleneck or max(1, width // 4), classes)


def init_stack(
    sizes: Sequence[int], seeds: Sequence[int], device: torch.device
) -> dict[str, Tensor]:
    """Draw the weights of K MLPs from U(±1/sqrt(fan_in)), as ``torch.nn.Linear`` does.

    Args:
        sizes: widths from features to logits.
        seeds: one seed per head; the weights of head k depend only on seeds[k].
        device: device of the weights.

    Returns:
        Leaf tensors ``{"0.weight": (K, out, in), "0.bias": (K, 1, out), "1.weight": ...}``.
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
    return {
        name: torch.stack(tensors).to(device).requires_grad_() for name, tensors in stack.items()
    }


def apply_stack(
    parameters: dict[str, Tensor], features: Tensor, activations: Sequence[Activation]
) -> Tensor:
    """Apply K MLPs by batched matrix products.

    One ``bmm`` per layer on one thread gives the same bits for head k for every K. A single flat
    product over all heads would not, and is no faster.

    Args:
        parameters: the result of ``init_stack``.
        features: (B, D), shared by all heads, or (K, B, D).
        activations: activation after each hidden layer.

    Returns:
        Logits (K, B, C).
    """
    logits: Tensor = _Perceptrons.apply(features, tuple(activations), *parameters.values())
    return logits


class _Perceptrons(torch.autograd.Function):
    """K MLPs with hand-written gradients.

    The gradients equal those of autograd for ``baddbmm`` and the activations to the last bit, but
    need fewer passes over memory: autograd copies the gradient of a transposed weight into the
    memory order of the weight.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, activations: tuple[Activation, ...], *tensors: Tensor
    ) -> Tensor:
        """Return logits (K, B, C); ``tensors`` are weight and bias of each layer."""
        # A view, so that K heads share one tensor.
        hidden = features.expand(tensors[0].shape[0], *features.shape[-2:])
        inputs, before = [], []
        for layer, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
            inputs.append(hidden)
            hidden = torch.baddbmm(bias, hidden, weight.transpose(1, 2))
            if layer < len(tensors) // 2 - 1:
                before.append(hidden)
                hidden = _activate(hidden, activations[layer])
        ctx.activations, ctx.shape = activations, features.shape
        ctx.save_for_backward(*inputs, *before, *tensors[::2])
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Return the gradients of features, weights and biases."""
        layers = (len(ctx.saved_tensors) + 1) // 3
        inputs = ctx.saved_tensors[:layers]
        before, weights = ctx.saved_tensors[layers:-layers], ctx.saved_tensors[-layers:]
        found: list[Tensor] = []
        for layer in reversed(range(layers)):
            # In the order (weight, bias), starting with the first layer.
            found[:0] = [_weight_gradient(gradient, inputs[layer]), gradient.sum(1, keepdim=True)]
            if layer or ctx.needs_input_grad[0]:
                gradient = torch.bmm(gradient, weights[layer])
            if layer:
                kind = ctx.activations[layer - 1]
                gradient = _deactivate(gradient, before[layer - 1], kind)
        of_features = gradient.sum_to_size(ctx.shape) if ctx.needs_input_grad[0] else None
        return of_features, None, *found


def _activate(hidden: Tensor, kind: Activation) -> Tensor:
    if kind == "relu":
        # In place: its gradient only needs to know where the output is zero.
        return hidden.relu_()
    return F.gelu(hidden) if kind == "gelu" else hidden


def _deactivate(gradient: Tensor, before: Tensor, kind: Activation) -> Tensor:
    """Return the gradient at the input ``before`` of an activation; ``gradient`` is overwritten."""
    if kind == "none":
        return gradient
    aten = torch.ops.aten
    found: Tensor = (
        aten.threshold_backward.grad_input(gradient, before, 0, grad_input=gradient)
        if kind == "relu"
        else aten.gelu_backward(gradient, before)
    )
    return found


def _weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradient (K, out, in) of weights, from gradient (K, B, out), inputs (K, B, in)."""
    heads, batch, outputs = gradient.shape
    if gradient.device.type != "cpu" or _sums_alike(min(heads, 2), batch, outputs, inputs.shape[2]):
        return torch.bmm(gradient.transpose(1, 2), inputs)
    transposed = torch.bmm(inputs.transpose(1, 2), gradient)
    result = torch.empty(heads, outputs, inputs.shape[2], dtype=gradient.dtype)
    # One by one: torch copies a transposed matrix in blocks, but a stack of them entry by entry.
    for own, given in zip(result, transposed, strict=True):
        own.copy_(given.T)
    return result


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
