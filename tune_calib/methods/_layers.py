"""Small networks with rectified units in post-hoc methods."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]
"""Weights (out, in) and biases (out,) of each layer; all but the last are rectified."""


def initial_layers(sizes: Sequence[int], output: float, like: Tensor) -> Layers:
    """Return layers that map everything to ``output``, with hidden weights by Glorot, seed 0."""
    generator = torch.Generator().manual_seed(0)
    layers = []
    for inputs, outputs in pairwise(sizes):
        bound = sqrt(6 / (inputs + outputs))
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        layers.append((weight.to(like), like.new_zeros(outputs)))
    weight, bias = layers[-1]
    layers[-1] = torch.zeros_like(weight), torch.full_like(bias, output)
    return layers


def evaluate_layers(inputs: Tensor, layers: Layers) -> Tensor:
    """Map inputs (..., D) to outputs (..., E)."""
    *hidden, (weight, bias) = layers
    for hidden_weight, hidden_bias in hidden:
        inputs = (inputs @ hidden_weight.T + hidden_bias).relu()
    return inputs @ weight.T + bias


def flatten_layers(layers: Layers) -> list[Tensor]:
    """Return the parameters in order: weight, bias, weight, bias and so on."""
    return [parameter for layer in layers for parameter in layer]


def pair_layers(parameters: Sequence[Tensor]) -> Layers:
    """Return the layers of a result of ``flatten_layers``."""
    return list(zip(parameters[::2], parameters[1::2], strict=True))


def state_of_layers(layers: Layers) -> dict[str, Tensor]:
    """Return the parameters as a state."""
    state: dict[str, Tensor] = {}
    for place, (weight, bias) in enumerate(layers):
        state |= {f"weight{place}": weight, f"bias{place}": bias}
    return state


def layers_of_state(state: Mapping[str, Tensor]) -> Layers:
    """Return the layers of a state, which may hold more than ``state_of_layers`` returned."""
    count = sum(name.startswith("weight") for name in state)
    return [(state[f"weight{place}"], state[f"bias{place}"]) for place in range(count)]
