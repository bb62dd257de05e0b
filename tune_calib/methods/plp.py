"""PLP, progressively layer-peeled training (Wang and Zhang, ICML 2024): freeze from the top.

"Calibration Bottleneck: Over-compressed Representations are Less Calibratable",
https://proceedings.mlr.press/v235/wang24cm.html. The network is trained with cross entropy, but
groups of top layers are frozen one after the other, so that the classifier is not over-trained and
the layers below learn features that can be calibrated. In the formula, n_0 > n_1 > ... are the J
boundaries.

Differences from the authors' code (dengbaowang/PLP): a start epoch is compared with ``>=`` instead
of ``==`` (there, two coinciding starts end all freezing). For networks without published
boundaries, the boundaries are our choice: up to 11 groups of blocks, evenly spaced, top first. As
in their code, frozen tensors get no gradient, weight decay or momentum, and batch normalisation
continues to update its statistics.

Own recipe: on Tiny-ImageNet, the authors start from trained weights and use other
learning rates; this recipe does not.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field
from torch import nn

from tune_calib.methods.ce import CrossEntropy
from tune_calib.spec.methods import METHODS, Params, cited

PUBLISHED: dict[int, tuple[int, ...]] = {
    161: (161, 150, 141, 129, 120, 102, 93, 84, 72, 54, 33),  # ResNet-50
    62: (62, 60, 57, 54, 45, 39, 30, 24, 15, 9, 3),  # ResNet-18
    34: (34, 32, 20, 12, 8, 4),  # VGG-11
}
"""Numbers of leading parameter tensors to train, by the network's number of parameter tensors."""

GROUPS = 11
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class PlpParams(Params):
    gamma: float = Field(1.0, gt=0)
    """Exponent of the schedule. Above 1, freezing starts earlier; below 1, later."""


def schedule(boundaries: tuple[int, ...], gamma: float, epochs: int) -> list[int]:
    """Return how many leading tensors each epoch trains: boundary j from (j / L)^gamma on."""
    total = len(boundaries)
    starts = [int((j / total) ** gamma * epochs) for j in range(total)]
    return [boundaries[bisect_right(starts, epoch) - 1] for epoch in range(epochs)]


def derive_boundaries(network: nn.Module) -> tuple[int, ...]:
    """Derive the boundaries of any network from up to 11 groups of about equally many blocks."""
    ends = block_ends(network)
    groups = min(GROUPS, len(ends))
    return tuple(ends[round(len(ends) * left / groups) - 1] for left in range(groups, 0, -1))


def block_ends(network: nn.Module) -> list[int]:
    """Return the number of parameter tensors up to the end of each block, bottom first.

    A block is a module in a container (``Sequential``, ``ModuleList``, ``ModuleDict``). A module
    that has only vectors as parameters (a normalisation) belongs to the block before it.
    """
    position = {id(tensor): i for i, tensor in enumerate(network.parameters())}
    ends: list[int] = []
    for block in _blocks(network):
        tensors = list(block.parameters())
        end = 1 + max(position[id(tensor)] for tensor in tensors)
        if ends and all(tensor.ndim < 2 for tensor in tensors):
            ends[-1] = end
        else:
            ends.append(end)
    return ends


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    for child in network.children():
        # Network.backbone is a container of blocks, whatever its class.
        if isinstance(child, _CONTAINERS) or child is getattr(network, "backbone", None):
            yield from _blocks(child)
        elif next(child.parameters(), None) is not None:
            yield child


class Plp(CrossEntropy):
    """Cross entropy that trains fewer and fewer leading parameter tensors."""

    counts: list[int]
    count = 0

    def adapt(self, network: Any) -> None:
        # The number of tensors distinguishes the authors' three networks. Boundaries count tensors
        # in the order of definition, stem first.
        total = len(list(network.parameters()))
        boundaries = PUBLISHED.get(total) or derive_boundaries(network)
        # The schedule follows from the spec, so a resumed run needs no state.
        self.counts = schedule(boundaries, self.params.gamma, self.context.epochs)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        self.count = self.counts[epoch]

    def trained(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        return parameters[: self.count]

    def end_epoch(self, epoch: int, feedback: Any) -> dict[str, float]:
        return {"plp/trained_tensors": float(self.count)}


METHODS.register(
    name="plp",
    title="progressively layer-peeled training",
    **cited("Wang and Zhang, ICML", "wang2024calibration"),
    formula=r"""
        L = \frac{1}{N} \sum_i -\log p_{i,y_i},
        \quad \text{epoch } t \text{ trains the first } n_{j(t)} \text{ parameter tensors},
        \quad j(t) = \max \{ j : \lfloor (j / J)^\gamma \, T \rfloor \le t \}
    """,
    params=PlpParams,
    implementation=Plp,
    recipe="plp",
)
