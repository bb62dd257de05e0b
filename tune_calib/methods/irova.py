"""IROvA and IROvA-TS (Zhang et al., ICML 2020): isotonic regression, one versus all.

For each class, an increasing curve is fitted to its probability by least squares, as in `isotonic`.
A slope of 1e-9 is added, so that classes whose curves are 0 keep their proportions. The rows of the
result are normalised; those of the authors' program are not. Results below 1e-12 are raised to it.

IROvA-TS first scales the logits by the temperature between 0.05 and 5 that minimises the mean
squared error of the probabilities. It is flagged at an end of this range.
"""

from collections.abc import Mapping
from math import log
from typing import ClassVar

import numpy as np
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone, interpolate, least_temperature, logarithm
from tune_calib.methods.ets import brier_scores
from tune_calib.methods.isotonic import class_curves
from tune_calib.methods.temperature import AT_BOUND
from tune_calib.metrics.refinement import NEAR
from tune_calib.spec.methods import METHODS, cited

_SLOPE = 1e-9
_BOUNDS = (0.05, 5.0)  # of the authors' program
_GRID = np.linspace(log(_BOUNDS[0]), log(_BOUNDS[1]), 21)  # of log T


class OneVersusAllIsotonic(FittedAlone):
    """An increasing curve per class."""

    is_scaled: ClassVar[bool] = False

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        temperature, record, flags = 1.0, {}, frozenset[str]()
        if self.is_scaled:
            centred = logits - logits.amax(-1, keepdim=True)
            temperature = least_temperature(
                lambda point: float(brier_scores(point, centred, labels).mean()), _GRID
            )
            record = {"temperature": temperature}
            if not _BOUNDS[0] * NEAR < temperature < _BOUNDS[1] / NEAR:
                flags = frozenset({AT_BOUND})
        probs = (logits / temperature).softmax(-1)
        knots = class_curves(probs, labels, np.ones(len(labels)))
        return Fit({"temperature": logits.new_tensor(temperature), "knots": knots}, record, flags)

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

METHODS.register(
    name="irova",
    title="isotonic regression, one versus all, with a slope",
    **cited("Zhang et al., ICML", "zhang2020mix"),
    formula=_FORMULA,
    implementation=OneVersusAllIsotonic,
    keeps_accuracy=False,
)
METHODS.register(
    name="irova_ts",
    title="temperature, then isotonic regression, one versus all",
    **cited("Zhang et al., ICML", "zhang2020mix"),
    formula=_FORMULA
    + r""", \quad p = \operatorname{softmax}(z / T),
        \quad T = \operatorname{argmin}_T \sum_{i \in \mathrm{calib}} \sum_k
            \left(\operatorname{softmax}(z_i / T)_k - [y_i = k]\right)^2
    """,
    implementation=ScaledOneVersusAllIsotonic,
    keeps_accuracy=False,
)
