"""Intra-order-preserving maps (Rahimi et al., NeurIPS 2020): DIAG, OI and OP.

None changes the order of the classes of a sample.

- DIAG applies one increasing function to all logits: the integral of a positive network of one
  input, ELU(h(x)) + 1.
- OP multiplies the differences of neighbouring sorted logits by positive factors, softplus(h(z)),
  and adds them up again from the smallest logit, which becomes 0.
- OI does the same with factors that depend on the sorted logits only, h(sort(z)).

The networks have two hidden layers and minimise the NLL plus half the weight decay times the sum of
their squared parameters.

Differences from the authors' program: the networks start from the best single temperature and are
fitted by at most 100 steps of L-BFGS (fewer with more than two million logits) to all of ``calib``,
and the trial is flagged if the last quarter still lowers the NLL by 0.005; theirs are means over
five folds, of which only the last was loaded. Instead of a quadrature for each logit, whose last
weight theirs does not halve, the integral of DIAG is taken once on 1,025 nodes over the range of
the logits of ``calib``, exactly for a piecewise linear integrand; beyond this range, its slope is
constant. Samples are sorted before the fit, so that their order changes nothing. Where rounding or
a flat function makes classes equal, the top class keeps a lead of a millionth.
"""

from collections.abc import Mapping
from math import expm1, log

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._networks import (
    Layers,
    NetworkMap,
    Objective,
    evaluate_layers,
    initial_layers,
    layers_of,
    softplus,
)
from tune_calib.methods._posthoc import keep_top
from tune_calib.metrics.refinement import BOUNDS
from tune_calib.spec.methods import METHODS, Params, cited

_NODES = 1025
_SMALLEST_SLOPE = 1e-8


class OrderParams(Params):
    width: int = Field(10, ge=1, le=500)
    """Units of both hidden layers."""
    weight_decay: float = Field(5e-4, ge=0)
    """Weight of half the sum of the squared parameters."""


class NarrowParams(OrderParams):
    width: int = Field(2, ge=1, le=500)
    """Units of both hidden layers."""


class DiagonalOrderPreserving(NetworkMap):
    """DIAG: the same increasing function of each logit."""

    def initial(self, temperature: float, logits: Tensor) -> Layers:
        slope = 1 / temperature
        output = slope - 1 if slope >= 1 else log(slope)
        return initial_layers([1, self.params.width, self.params.width, 1], output, logits)

    def objective(self, logits: Tensor, labels: Tensor) -> Objective:
        nodes, step = _nodes(logits)
        cells, shares = _cells(logits, nodes[0], step)

        def loss(layers: Layers) -> Tensor:
            scores = _integrated(positive_slopes(nodes, layers), step, cells, shares)
            return penalised_nll(scores, labels, layers, self.params.weight_decay)

        return loss

    def kept(self, layers: Layers, logits: Tensor) -> dict[str, Tensor]:
        nodes, step = _nodes(logits)
        slopes = positive_slopes(nodes, layers)
        return {**super().kept(layers, logits), "first": nodes[0], "step": step, "slopes": slopes}

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return keep_top(integral(logits, state).log_softmax(-1), logits)


class PlainOrderPreserving(NetworkMap):
    """OP: factors of the differences of sorted logits, from the logits."""

    def initial(self, temperature: float, logits: Tensor) -> Layers:
        factor, classes = min(1 / temperature, 1 / BOUNDS[0]), logits.shape[-1]
        output = factor + log(-expm1(-factor))  # the inverse of the softplus
        return initial_layers([classes, *[self.params.width] * 2, classes], output, logits)

    def inputs(self, logits: Tensor, descending: Tensor) -> Tensor:
        """Return what the network reads, (N, C)."""
        return logits

    def objective(self, logits: Tensor, labels: Tensor) -> Objective:
        descending, order = logits.topk(logits.shape[-1], dim=-1)
        columns = (order == labels[:, None]).flip(-1).long().argmax(-1)
        inputs = self.inputs(logits, descending)

        def loss(layers: Layers) -> Tensor:
            scores = ascending_scores(inputs, descending, layers)
            return penalised_nll(scores, columns, layers, self.params.weight_decay)

        return loss

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        # A sort, which ONNX has as TopK.
        descending, order = logits.topk(logits.shape[-1], dim=-1)
        inputs = self.inputs(logits, descending)
        scores = ascending_scores(inputs, descending, layers_of(state)).flip(-1)
        placed = torch.zeros_like(logits).scatter(-1, order, scores)
        return keep_top(placed.log_softmax(-1), logits)


class InvariantOrderPreserving(PlainOrderPreserving):
    """OI: factors of the differences of sorted logits, from the sorted logits."""

    def inputs(self, logits: Tensor, descending: Tensor) -> Tensor:
        return descending


def penalised_nll(scores: Tensor, columns: Tensor, layers: Layers, weight_decay: float) -> Tensor:
    """Return the mean NLL of scores (N, C) at columns (N,) plus the penalty, in nats."""
    loss = F.cross_entropy(scores, columns)
    for parameter in layers:
        loss = loss + weight_decay / 2 * parameter.square().sum()
    return loss


def positive_slopes(places: Tensor, layers: Layers) -> Tensor:
    """Return the integrand of DIAG at places (M,), at least 1e-8."""
    outputs = evaluate_layers(places[:, None], layers)[:, 0]
    # ELU + 1, where the exponential does not overflow.
    return outputs.relu() + outputs.clamp(max=0).exp() + _SMALLEST_SLOPE


def _nodes(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return equidistant nodes over the range of logits, and their distance."""
    low, high = float(logits.min()), float(logits.max())
    high = max(high, low + 1e-6)
    nodes = torch.linspace(low, high, _NODES, dtype=logits.dtype, device=logits.device)
    return nodes, nodes[1] - nodes[0]


def _cells(logits: Tensor, first: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cell of each logit, and how far it lies within it, in steps."""
    places = (logits - first) / step
    # A logit that is NaN stays so by its share; its cell must be a number.
    finite = torch.where(places.isfinite(), places, torch.zeros_like(places))
    cells = finite.floor().clamp(0, _NODES - 2)
    return cells.long(), places - cells


def _integrated(slopes: Tensor, step: Tensor, cells: Tensor, shares: Tensor) -> Tensor:
    low, high = slopes[:-1], slopes[1:]
    sums = ((low + high) / 2).cumsum(0)
    sums = torch.cat([torch.zeros_like(sums[:1]), sums[:-1]])
    inside = shares.clamp(0, 1)
    low, rises = low[cells], (high - low)[cells]
    # Beyond the nodes, the slope is that at the end.
    beyond = (low + inside * rises) * (shares - inside)
    return step * (sums[cells] + inside * (low + inside * rises / 2) + beyond)


def integral(logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """Return the integral (N, C) of slopes at equidistant nodes, linear between, up to logits."""
    cells, shares = _cells(logits, state["first"], state["step"])
    return _integrated(state["slopes"], state["step"], cells, shares)


def ascending_scores(inputs: Tensor, descending: Tensor, layers: Layers) -> Tensor:
    """Return the scores (N, C) of OI and OP from the smallest, 0, to the largest."""
    factors = softplus(evaluate_layers(inputs, layers)[..., 1:])
    ascending = descending.flip(-1)
    rises = factors * (ascending[..., 1:] - ascending[..., :-1])
    return torch.cat([torch.zeros_like(descending[..., :1]), rises.cumsum(-1)], -1)


_PAPER = cited("Rahimi et al., NeurIPS", "rahimi2020intra")

METHODS.register(
    name="iop_diag",
    title="one increasing function of all logits",
    **_PAPER,
    formula=r"""
        p = \operatorname{softmax}(f(z_1), \dots, f(z_C)),
        \quad f(x) = \int_0^x \operatorname{ELU}(h(t)) + 1 \, dt
    """,
    params=OrderParams,
    implementation=DiagonalOrderPreserving,
    keeps_accuracy=True,
)
METHODS.register(
    name="iop_oi",
    title="order-invariant, order-preserving map of logits",
    **_PAPER,
    formula=r"""
        p = \operatorname{softmax}(f(z)), \quad f(z)_{(i)} = \sum_{j = i}^{C - 1}
            \ln\left(1 + e^{h_j(z_{(1)}, \dots, z_{(C)})}\right) (z_{(j)} - z_{(j + 1)})
    """,
    params=OrderParams,
    implementation=InvariantOrderPreserving,
    keeps_accuracy=True,
)
METHODS.register(
    name="iop_op",
    title="order-preserving map of logits",
    **_PAPER,
    formula=r"""
        p = \operatorname{softmax}(f(z)), \quad f(z)_{(i)} = \sum_{j = i}^{C - 1}
            \ln\left(1 + e^{h_j(z)}\right) (z_{(j)} - z_{(j + 1)})
    """,
    params=NarrowParams,
    implementation=PlainOrderPreserving,
    keeps_accuracy=True,
)
