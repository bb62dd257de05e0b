"""Isotonic regression of Mix-n-Match (Zhang et al., ICML 2020): IRM, IROvA and IROvA-TS.

Increasing curves of the probabilities are fitted to ``calib`` by least squares, as in `isotonic`. A
slope of 1e-9 is added, the rows of the result are normalised, and results below 1e-12 are raised to
it.

- IRM fits one curve to all N C probabilities, with a target of 1 for the true class and 0 for the
  others. The slope makes it strictly increasing, which preserves the order of the classes. Where
  rounding would undo this, the top class keeps a lead of a millionth.
- IROvA fits a curve to the probability of each class. The slope keeps the proportions of classes
  whose curves are 0. The rows of the authors' program are not normalised.
- IROvA-TS first scales the logits by the temperature between 0.05 and 5 that minimises the mean
  squared error of the probabilities. It is flagged at an end of this range.
"""

from collections.abc import Mapping
from math import log
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._posthoc import (
    Fit,
    FittedAlone,
    interpolate,
    isotonic_curves,
    keep_top,
    least_temperature,
    logarithm,
)
from tune_calib.methods.ets import brier_scores
from tune_calib.metrics.refinement import NEAR
from tune_calib.spec.methods import METHODS, cited

_SLOPE = 1e-9
_BOUNDS = (0.05, 5.0)  # of the authors' program
_GRID = np.linspace(log(_BOUNDS[0]), log(_BOUNDS[1]), 21)  # of log T


class MulticlassIsotonicCalibration(FittedAlone):
    """An increasing curve shared by all classes."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        probs = logits.softmax(-1)
        events = (part.reshape(1, -1) for part in (probs, F.one_hot(labels, probs.shape[-1])))
        return Fit({"knots": isotonic_curves(*events)[0]})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        probs = logits.softmax(-1)
        values = interpolate(probs.reshape(1, -1), state["knots"][None]).reshape(probs.shape)
        return keep_top(logarithm(values + _SLOPE * probs), logits)


class OneVersusAllIsotonic(FittedAlone):
    """An increasing curve per class."""

    is_scaled: ClassVar[bool] = False

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        temperature, record, is_at_bound = 1.0, {}, False
        if self.is_scaled:
            centred = logits - logits.amax(-1, keepdim=True)
            temperature = least_temperature(
                lambda point: float(brier_scores(point, centred, labels).mean()), _GRID
            )
            record = {"temperature": temperature}
            is_at_bound = not _BOUNDS[0] * NEAR < temperature < _BOUNDS[1] / NEAR
        probs = (logits / temperature).softmax(-1).T
        knots = isotonic_curves(probs, F.one_hot(labels, len(probs)).T)
        state = {"temperature": logits.new_tensor(temperature), "knots": knots}
        return Fit(state, record, is_at_bound=is_at_bound)

    def values(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return the values (N, C) of the curves, before they are normalised."""
        probs = (logits / state["temperature"]).softmax(-1)
        return interpolate(probs.T, state["knots"]).T + _SLOPE * probs

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return logarithm(self.values(logits, state))


class ScaledOneVersusAllIsotonic(OneVersusAllIsotonic):
    """A temperature, then an increasing curve per class."""

    is_scaled = True


_FORMULA = r"""
        q_k = \frac{f_k(p_k) + \epsilon p_k}{\sum_j f_j(p_j) + \epsilon p_j},
        \quad f_k = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
            \left(f(p_{ik}) - [y_i = k]\right)^2, \quad \epsilon = 10^{-9}
    """
_PAPER = cited("Zhang et al., ICML", "zhang2020mix")

METHODS.register(
    name="irm",
    title="order-preserving isotonic regression over all classes",
    **_PAPER,
    formula=r"""
        q_k = \frac{f(p_k) + \epsilon p_k}{\sum_j f(p_j) + \epsilon p_j},
        \quad f = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
            \sum_k \left(f(p_{ik}) - [y_i = k]\right)^2, \quad \epsilon = 10^{-9}
    """,
    implementation=MulticlassIsotonicCalibration,
    keeps_accuracy=True,
)
METHODS.register(
    name="irova",
    title="isotonic regression, one versus all, with a slope",
    **_PAPER,
    formula=_FORMULA,
    implementation=OneVersusAllIsotonic,
    keeps_accuracy=False,
)
METHODS.register(
    name="irova_ts",
    title="temperature, then isotonic regression, one versus all",
    **_PAPER,
    formula=_FORMULA
    + r""", \quad p = \operatorname{softmax}(z / T),
        \quad T = \operatorname{argmin}_T \sum_{i \in \mathrm{calib}} \sum_k
            \left(\operatorname{softmax}(z_i / T)_k - [y_i = k]\right)^2
    """,
    implementation=ScaledOneVersusAllIsotonic,
    keeps_accuracy=False,
)
