"""PLP, progressively layer-peeled training (Wang and Zhang, ICML 2024): freeze from the top.

"Calibration Bottleneck: Over-compressed Representations are Less Calibratable",
https://proceedings.mlr.press/v235/wang24cm.html. Cross entropy is trained as usual, but the top
layers stop moving one group after the other, so that a classifier that is not over-trained gives
the layers below features that can be calibrated. In the formula n_0 > n_1 > ... are the J
boundaries.

Differences from the authors' code (dengbaowang/PLP): a start epoch is met with ``>=``, not ``==``
(two coinciding starts end all freezing there), and boundaries of networks without a published
list are our choice: up to 11 groups of blocks, evenly spaced, top first. Frozen tensors get no
gradient, decay or momentum, and batch normalisation goes on moving its statistics, as there.

Own recipe: SGD with weight decay 5e-4 (1e-4 on Tiny-ImageNet) on the mean loss without clipping,
the last epoch. On Tiny-ImageNet the authors start from trained weights, with other rates; we do
not.
"""

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.methods._base import NetworkContext, NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params

PUBLISHED: dict[int, tuple[int, ...]] = {
    161: (161, 150, 141, 129, 120, 102, 93, 84, 72, 54, 33),  # ResNet-50
    62: (62, 60, 57, 54, 45, 39, 30, 24, 15, 9, 3),  # ResNet-18
    34: (34, 32, 20, 12, 8, 4),  # VGG-11
}
"""Boundaries by the number of parameter tensors: how many leading ones are trained."""

GROUPS = 11

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class PlpParams(Params):
    """Hyper-parameters."""

    gamma: float = Field(1.0, gt=0)
    """Above 1 freezing starts earlier, below 1 later."""


def schedule(boundaries: tuple[int, ...], gamma: float, epochs: int) -> list[int]:
    """Number of leading parameter tensors that each epoch trains.

    Args:
        boundaries: numbers of tensors, falling, the first of them all.
        gamma: boundary j of L is in force from epoch ``int((j / L) ** gamma * epochs)`` on.
        epochs: planned epochs.

    Returns:
        One number an epoch.
    """
    total = len(boundaries)
    starts = [int((j / total) ** gamma * epochs) for j in range(total)]
    return [boundaries[sum(start <= epoch for start in starts) - 1] for epoch in range(epochs)]


def derive_boundaries(network: nn.Module) -> tuple[int, ...]:
    """Boundaries of any network: its blocks in up to 11 groups of about as many blocks each."""
    ends = block_ends(network)
    groups = min(GROUPS, len(ends))
    return tuple(ends[round(len(ends) * left / groups) - 1] for left in range(groups, 0, -1))


def block_ends(network: nn.Module) -> list[int]:
    """Number of parameter tensors up to the end of each block, bottom first.

    A block is what containers (``Sequential``, ``ModuleList``, ``ModuleDict``) hold; a module
    with nothing but vectors (a normalisation) belongs to the block before it.
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
        # Network.backbone holds blocks as a container does, whatever its class.
        if isinstance(child, _CONTAINERS) or child is getattr(network, "backbone", None):
            yield from _blocks(child)
        elif next(child.parameters(), None) is not None:
            yield child


class Plp(NetworkMethod):
    """Cross entropy that trains fewer and fewer leading parameter tensors."""

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        self.counts: list[int] = []
        self.count = 0

    def adapt(self, network: Any) -> None:
        """Look the boundaries up, or derive them."""
        # By the number of tensors, which tells the authors' three networks apart; boundaries count
        # them in the order of definition, stem first.
        total = len(list(network.parameters()))
        boundaries = PUBLISHED.get(total) or derive_boundaries(network)
        # Follows from the spec, so that it is no state and a resumed run needs nothing.
        self.counts = schedule(boundaries, self.params.gamma, self.context.epochs)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """Freeze what the schedule says."""
        self.count = self.counts[epoch]

    def trained(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """The leading tensors."""
        return parameters[: self.count]

    def end_epoch(self, epoch: int, feedback: Any) -> dict[str, float]:
        """Record how many tensors were trained."""
        return {"plp/trained_tensors": float(self.count)}

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Mean cross entropy, in nats."""
        return F.cross_entropy(logits, labels)


WANG = """
@inproceedings{wang2024calibration,
  author = {Wang, Deng-Bao and Zhang, Min-Ling},
  title = {Calibration Bottleneck: Over-compressed Representations are Less Calibratable},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  pages = {52156--52170},
  year = {2024},
  url = {https://proceedings.mlr.press/v235/wang24cm.html},
}
"""

METHODS.register(
    MethodInfo(
        name="plp",
        kind="network",
        title="progressively layer-peeled training",
        paper="Wang and Zhang, ICML",
        year=2024,
        url="https://proceedings.mlr.press/v235/wang24cm.html",
        formula=r"""
            L = \frac{1}{N} \sum_i -\log p_{i,y_i},
            \quad \text{epoch } t \text{ trains the first } n_{j(t)} \text{ parameter tensors},
            \quad j(t) = \max \{ j : \lfloor (j / J)^\gamma \, T \rfloor \le t \}
        """,
        bibtex=WANG,
        params=PlpParams,
        implementation=Plp,
        recipe="plp",
    ),
)
