"""Heads with a leading population axis: K multi-layer perceptrons in stacked weights."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.seeds import child_seed

Activation = Literal["relu", "gelu", "none"]

HeadShape = Literal["linear", "bottleneck"]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "none": lambda x: x,
}


def layer_sizes(
    shape: HeadShape, width: int, classes: int, bottleneck: int | None
) -> tuple[int, ...]:
    """Widths from the features to the logits; the bottleneck is D/4 unless given."""
    if shape == "linear":
        return (width, classes)
    return (width, bottleneck or max(1, width // 4), classes)


def init_stack(
    sizes: Sequence[int], seeds: Sequence[int], device: torch.device
) -> dict[str, Tensor]:
    """Draw the weights of K perceptrons as ``torch.nn.Linear`` does, U(±1/sqrt(fan_in)).

    Args:
        sizes: widths from the features to the logits.
        seeds: one a head; head k's weights depend on seeds[k] alone.
        device: where the weights live.

    Returns:
        ``{"0.weight": (K, out, in), "0.bias": (K, 1, out), "1.weight": ...}``, leaves of autograd.
    """
    stack: dict[str, list[Tensor]] = {}
    # By hand and head by head: nn.Linear draws from the global generator, and one draw for all
    # heads would make a head's weights depend on how many there are.
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
    """Run K perceptrons by batched matrix products.

    One ``bmm`` a layer on one thread gives the same bits for head k whatever K is; a single flat
    product over all heads is no faster and does not.

    Args:
        parameters: as ``init_stack`` gives them.
        features: (B, D), shared by all heads, or (K, B, D).
        activations: one behind each hidden layer.

    Returns:
        Logits (K, B, C).
    """
    heads = parameters["0.weight"].shape[0]
    # A view: K heads read one tensor.
    hidden = features.expand(heads, *features.shape[-2:])
    layers = len(parameters) // 2
    for layer in range(layers):
        weight, bias = parameters[f"{layer}.weight"], parameters[f"{layer}.bias"]
        hidden = torch.baddbmm(bias, hidden, weight.transpose(1, 2))
        if layer < layers - 1:
            hidden = _ACTIVATIONS[activations[layer]](hidden)
    return hidden
