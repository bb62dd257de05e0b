"""IROvA and IROvA-TS (Zhang et al., ICML 2020): isotonic regression, one versus all.

For each class, an increasing curve is fitted to its probability by least squares, as in `isotonic`.
A slope of 1e-9 is added, so that classes whose curves are 0 keep their proportions. The rows of the
result are normalised; those of the authors' program are not. Results below 1e-12 are raised to it.

IROvA-TS first scales the logits by the temperature between 0.05 and 5 that minimises the mean
squared error of the probabilities. It is flagged at an end of this range.
"""

from collections.abc import Mapping
from math import log

import numpy as np
from scipy.optimize import minimize_scalar
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone, interpolate, isotonic, logarithm, stacked
from tune_calib.methods.ets import brier_scores
from tune_calib.methods.temperature import AT_BOUND
from tune_calib.metrics.refinement import NEAR
from tune_calib.spec.methods import METHODS, cited

_SLOPE = 1e-9
_BOUNDS = (0.05, 5.0)  # of the authors' program
_GRID = np.linspace(log(_BOUNDS[0]), log(_BOUNDS[1]), 21)  # of log T


class OneVersusAllIsotonic(FittedAlone):
    """An increasing curve per class."""

    def scale(self, logits: Tensor, labels: Tensor) -> float:
        """Return the temperature of logits (N, C)."""
        return 1.0

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        temperature = self.scale(logits, labels)
        probs = (logits / temperature).softmax(-1).T.contiguous().cpu().numpy()
        targets, ones = labels.cpu().numpy(), np.ones(len(labels))
        curves = [isotonic(values, targets == k, ones) for k, values in enumerate(probs)]
        state = {
            "temperature": logits.new_tensor(temperature),
            "knots": stacked(curves).to(logits.device),
        }
        return Fit(state)

    def values(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return the values (N, C) of the curves, before they are normalised."""
        probs = (logits / state["temperature"]).softmax(-1)
        return interpolate(probs.T, state["knots"]).T + _SLOPE * probs

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return logarithm(self.values(logits, state))


class ScaledOneVersusAllIsotonic(OneVersusAllIsotonic):
    """A temperature, then an increasing curve per class."""

    def scale(self, logits: Tensor, labels: Tensor) -> float:
        centred = logits - logits.amax(-1, keepdim=True)

        def error(log_temperature: float) -> float:
            return float(brier_scores(log_temperature, centred, labels).mean())

        # Not convex in T: find the best point of a grid, then search between its neighbours.
        best = int(np.argmin([error(point) for point in _GRID]))
        ends = _GRID[max(0, best - 1)], _GRID[min(len(_GRID) - 1, best + 1)]
        minimum = minimize_scalar(error, bounds=ends, method="bounded", options={"xatol": 1e-8})
        return float(np.exp(minimum.x))

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        fit = super().fit_one(logits, labels)
        temperature = float(fit.state["temperature"])
        is_inside = _BOUNDS[0] * NEAR < temperature < _BOUNDS[1] / NEAR
        flags = frozenset() if is_inside else frozenset({AT_BOUND})
        return Fit(fit.state, {"temperature": temperature}, flags)


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
