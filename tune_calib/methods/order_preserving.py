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
constant. Where rounding or a flat function makes classes equal, the top class keeps a lead of a
millionth.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import expm1, log

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._descent import descended
from tune_calib.methods._layers import (
    Layers,
    evaluate_layers,
    flatten_layers,
    initial_layers,
    layers_of_state,
    pair_layers,
    state_of_layers,
)
from tune_calib.methods._posthoc import UNCONVERGED, Fit, FittedAlone, keep_top
from tune_calib.methods.temperature import AT_BOUND, converged
from tune_calib.metrics.refinement import BOUNDS, has_best_temperature
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


class OrderPreserving(FittedAlone):
    """A map whose network is fitted by the NLL."""

    @abstractmethod
    def initial(self, temperature: float, logits: Tensor) -> Layers:
        """Return layers for which the map divides logits by a temperature."""

    @abstractmethod
    def prepared(self, logits: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return what ``scores`` needs besides the layers, and the columns (N,) of the labels."""

    @abstractmethod
    def scores(self, layers: Layers, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the mapped logits (N, C), in the order of the columns."""

    @abstractmethod
    def kept(self, layers: Layers, logits: Tensor) -> dict[str, Tensor]:
        """Return the state of a map fitted to logits."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        start = self.initial(converged(logits, labels, 1e-3), logits)
        fit = self._fit_from(start, logits, labels, is_fold=False)
        if has_best_temperature(logits, labels):
            return fit
        return Fit(fit.state, fit.record, fit.flags | {AT_BOUND})

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit) -> Fit:
        return self._fit_from(layers_of_state(full_fit.state), logits, labels, is_fold=True)

    def _fit_from(self, start: Layers, logits: Tensor, labels: Tensor, is_fold: bool) -> Fit:
        parts, columns = self.prepared(logits, labels)

        def objective(parameters: Sequence[Tensor]) -> Tensor:
            loss = F.cross_entropy(self.scores(pair_layers(parameters), parts), columns)
            for parameter in parameters:
                loss = loss + self.params.weight_decay / 2 * parameter.square().sum()
            return loss

        best, loss, is_converged = descended(objective, flatten_layers(start), logits, is_fold)
        flags = frozenset() if is_converged else frozenset({UNCONVERGED})
        return Fit(self.kept(pair_layers(best), logits), {"objective": loss}, flags)


class DiagonalOrderPreserving(OrderPreserving):
    """DIAG: the same increasing function of each logit."""

    def initial(self, temperature: float, logits: Tensor) -> Layers:
        slope = 1 / temperature
        output = slope - 1 if slope >= 1 else log(slope)
        return initial_layers([1, self.params.width, self.params.width, 1], output, logits)

    def prepared(self, logits: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        nodes = _nodes_of(logits)
        cells, shares = _cells(logits, nodes[0], nodes[1] - nodes[0])
        return {"nodes": nodes, "cells": cells, "shares": shares}, labels

    def scores(self, layers: Layers, parts: Mapping[str, Tensor]) -> Tensor:
        slopes, step = (
            positive_slopes(parts["nodes"], layers),
            parts["nodes"][1] - parts["nodes"][0],
        )
        return _integrated(slopes, step, parts["cells"], parts["shares"])

    def kept(self, layers: Layers, logits: Tensor) -> dict[str, Tensor]:
        nodes = _nodes_of(logits)
        slopes = positive_slopes(nodes, layers)
        knots = {"first": nodes[0], "step": nodes[1] - nodes[0], "slopes": slopes}
        return {**state_of_layers(layers), **knots}

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return keep_top(integral(logits, state).log_softmax(-1), logits)


class PlainOrderPreserving(OrderPreserving):
    """OP: factors of the differences of sorted logits, from the logits."""

    def initial(self, temperature: float, logits: Tensor) -> Layers:
        factor, classes = min(1 / temperature, 1 / BOUNDS[0]), logits.shape[-1]
        output = factor + log(-expm1(-factor))  # the inverse of the softplus
        return initial_layers([classes, *[self.params.width] * 2, classes], output, logits)

    def inputs(self, logits: Tensor, descending: Tensor) -> Tensor:
        """Return what the network reads, (N, C)."""
        return logits

    def prepared(self, logits: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        descending, order = logits.topk(logits.shape[-1], dim=-1)
        places = (order == labels[:, None]).long().argmax(-1)
        parts = {"inputs": self.inputs(logits, descending), "descending": descending}
        return parts, logits.shape[-1] - 1 - places

    def scores(self, layers: Layers, parts: Mapping[str, Tensor]) -> Tensor:
        return ascending_scores(parts["inputs"], parts["descending"], layers)

    def kept(self, layers: Layers, logits: Tensor) -> dict[str, Tensor]:
        return state_of_layers(layers)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        # A sort, which ONNX has as TopK.
        descending, order = logits.topk(logits.shape[-1], dim=-1)
        inputs = self.inputs(logits, descending)
        scores = ascending_scores(inputs, descending, layers_of_state(state)).flip(-1)
        placed = torch.zeros_like(logits).scatter(-1, order, scores)
        return keep_top(placed.log_softmax(-1), logits)


class InvariantOrderPreserving(PlainOrderPreserving):
    """OI: factors of the differences of sorted logits, from the sorted logits."""

    def inputs(self, logits: Tensor, descending: Tensor) -> Tensor:
        return descending


def positive_slopes(places: Tensor, layers: Layers) -> Tensor:
    """Return the integrand of DIAG at places (M,), at least 1e-8."""
    outputs = evaluate_layers(places[:, None], layers)[:, 0]
    # ELU + 1, where the exponential does not overflow.
    return outputs.relu() + outputs.clamp(max=0).exp() + _SMALLEST_SLOPE


def _nodes_of(logits: Tensor) -> Tensor:
    low, high = float(logits.min()), float(logits.max())
    high = max(high, low + 1e-6)
    return torch.linspace(low, high, _NODES, dtype=logits.dtype, device=logits.device)


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
    outputs = evaluate_layers(inputs, layers)[..., 1:]
    # The softplus, which onnxruntime does not have in double precision.
    factors = outputs.relu() + (-outputs.abs()).exp().log1p()
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
