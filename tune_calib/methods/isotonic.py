"""Isotonic regression, one versus rest (Zadrozny and Elkan, KDD 2002).

For each class, an increasing function of its probability is fitted to its labels by least squares,
with linear interpolation as in scikit-learn. The rows of the result are normalised. A row of zeros
becomes uniform, and results below 1e-12 are raised to it: where the curve of the true class is 0,
the NLL is 27.6 nats.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), a single curve, from the
confidence to the share of correct predictions, replaces those of the classes. The other classes
share the rest in their original proportions, and the accuracy does not change.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import (
    Fit,
    FittedAlone,
    Floats,
    interpolate,
    isotonic,
    logarithm,
    stacked,
    with_confidence,
)
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS, Params, cited


class IsotonicParams(Params):
    top_versus_all: bool = Field(False, exclude_if=lambda is_set: not is_set)  # keeps old hashes
    """Whether only the confidence is replaced, by a curve fitted to whether predictions are right.
    """


class IsotonicCalibration(FittedAlone):
    """An increasing curve per class."""

    takes_weights = True

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        weights = np.ones(len(labels)) if self.weights is None else self.weights.cpu().numpy()
        if self.params.top_versus_all:
            confidence, correct = top_label(logits.softmax(-1), labels)
            curve = isotonic(confidence.cpu().numpy(), correct.bool().cpu().numpy(), weights)
            return Fit({"knots": curve[None].to(logits.device)})
        return Fit({"knots": class_curves(logits.softmax(-1), labels, weights)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        if self.params.top_versus_all:
            confidence = logits.softmax(-1).amax(-1, keepdim=True)
            return with_confidence(logits, interpolate(confidence.T, state["knots"]).T)
        return logarithm(interpolate(logits.softmax(-1).T, state["knots"]).T)


def class_curves(probs: Tensor, labels: Tensor, weights: Floats) -> Tensor:
    """Fit an increasing curve to each column of probabilities (N, C); return knots (C, 2, M)."""
    columns, targets = probs.T.contiguous().cpu().numpy(), labels.cpu().numpy()
    curves = [isotonic(values, targets == k, weights) for k, values in enumerate(columns)]
    return stacked(curves).to(probs.device)


METHODS.register(
    name="isotonic",
    title="isotonic regression, one versus rest",
    **cited("Zadrozny and Elkan, KDD", "zadrozny2002transforming"),
    formula=r"""
        q_k = \frac{f_k(p_k)}{\sum_j f_j(p_j)},
        \quad f_k = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
            \left(f(p_{ik}) - [y_i = k]\right)^2
    """,
    params=IsotonicParams,
    implementation=IsotonicCalibration,
    keeps_accuracy=False,
)
