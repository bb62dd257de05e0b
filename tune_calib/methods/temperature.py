"""Temperature scaling (Guo et al., ICML 2017): softmax(z / T) with T fitted on ``calib``.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), T minimises the binary
cross-entropy of the confidence against whether the prediction is right, to convergence. It needs no
probabilities of the other classes, of which most are near 0. The authors take 200 steps of 0.001
from T = 1.5, which do not arrive.
"""

from collections.abc import Iterable, Mapping
from math import log
from typing import Literal, Self

import numpy as np
import torch
from pydantic import model_validator
from scipy.optimize import minimize_scalar
from torch import Tensor

from tune_calib.methods._functional import label_log_probs, weighted_mean
from tune_calib.methods._posthoc import (
    Fit,
    FittedAlone,
    TopVersusAllParams,
    least_temperature,
    losses_of,
)
from tune_calib.metrics import refinement
from tune_calib.metrics.binning import confidence_table, top_label
from tune_calib.spec.methods import METHODS, cited

_GRID = np.cumsum(np.full(100, 0.1))  # a sum, to reproduce the rounding of the authors' loop
_FOLD_TOLERANCE = 1e-3  # of log T for cross-validation, which fits each classifier five more times
# Where top-versus-all calibration searches log T, and around that of the full fit for a fold.
_SEARCHED = np.linspace(log(refinement.BOUNDS[0]), log(refinement.BOUNDS[1]), 25)
_NEAR = np.array([-log(2), 0, log(2)])
_LOWEST = -100.0  # logarithm, as in PyTorch


class TemperatureParams(TopVersusAllParams):
    fit: Literal["nll", "grid_ece", "grid_nll"] = "nll"
    """Objective that the temperature minimises on `calib`.

    - `nll`: the NLL, to convergence, at any scale of the logits. The published LBFGS fits of the
      NLL do not converge: they give T = 1.37 where the optimum is 0.3, and 2.39 where it is 2.9.
    - `grid_ece`: the ECE with 15 bins, at its first minimum over T = 0.1, 0.2, ..., 10.0, as in the
      code of Mukhoti et al., MbLS, ACLS and FeDLaS.
    - `grid_nll`: the NLL, at its first minimum over the same grid.
    """

    @model_validator(mode="after")
    def _has_one_objective(self) -> Self:
        if self.top_versus_all and self.fit != "nll":
            raise ValueError(f"top_versus_all replaces the objective {self.fit}; leave out fit")
        return self


class TemperatureScaling(FittedAlone):
    """One temperature per head; the accuracy does not change."""

    @property
    def takes_weights(self) -> bool:  # type: ignore[override]
        """Return whether the objective is an NLL; the ECE counts samples."""
        return bool(self.params.fit != "grid_ece")

    harm_flag = "temperature_harms"  # the name is older than the flags of other methods

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        temperature = self._best(logits, labels)
        is_at_bound = not refinement.has_best_temperature(logits, labels, self.weights)
        if self.params.fit != "nll" or self.params.top_versus_all:
            ends = refinement.BOUNDS if self.params.top_versus_all else (_GRID[0], _GRID[-1])
            is_inside = ends[0] * refinement.NEAR < temperature < ends[1] / refinement.NEAR
            is_at_bound = is_all_right(logits, labels) or not is_inside
        if self.params.top_versus_all:  # of equal logits, T changes nothing
            is_at_bound |= bool((logits.amax(-1) == logits.amin(-1)).all())
        state = {"temperature": torch.tensor(temperature, dtype=torch.float64)}
        return Fit(state, {"temperature": temperature}, is_at_bound=bool(is_at_bound))

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        temperature = torch.tensor(self._best(logits, labels, full_fit), dtype=torch.float64)
        return Fit({"temperature": temperature})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return logits / state["temperature"]

    def _best(self, logits: Tensor, labels: Tensor, full_fit: Fit | None = None) -> float:
        if self.params.top_versus_all:
            return top_versus_all_temperature(logits, labels, self.weights, full_fit)
        if self.params.fit == "nll":
            if full_fit is None:
                return converged(logits, labels, weights=self.weights)
            return near(full_fit, logits, labels, self.weights)
        if self.params.fit == "grid_ece":
            return _by_ece(logits, labels)
        return _first_best(_nll(logits, labels, self.weights, float(point)) for point in _GRID)


def _by_ece(logits: Tensor, labels: Tensor) -> float:
    # Created before the temporary tensors: between them, small results would keep freed memory from
    # being used again.
    confidences, hits = logits.new_empty(2, len(_GRID), len(labels))
    # A few rows at a time, which stay in the cache.
    for rows in refinement.parts_of(logits):
        for k, temperature in enumerate(_GRID):
            probs = (logits[rows] / float(temperature)).softmax(-1)
            confidences[k, rows], hits[k, rows] = top_label(probs, labels[rows])
    gaps = confidence_table(confidences, hits).expected_gap(len(labels))
    return _first_best(gaps.tolist())


def _first_best(values: Iterable[float]) -> float:
    return float(_GRID[int(np.argmin(list(values)))])


def near(full_fit: Fit, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """Return the best T of a fold, for cross-validation, close to that of the full fit."""
    start = 1 / full_fit.state["temperature"].to(logits)
    inverse = refinement.inverse_temperature(
        logits, labels, start=start, weights=weights, tolerance=_FOLD_TOLERANCE
    )
    return 1 / float(inverse)


def is_all_right(logits: Tensor, labels: Tensor) -> bool:
    """Return whether every sample is classified correctly.

    The NLL then keeps falling towards T = 0, so that the fitted temperature is just the end of its
    range and says nothing about calib.
    """
    return bool((logits.argmax(-1) == labels).all())


def has_optimum(logits: Tensor, labels: Tensor) -> bool:
    """Return whether a scale and an intercept per class can have an optimum.

    This requires samples of all classes and at least one error. The intercept of a missing class
    would fall without end.
    """
    return len(labels.unique()) == logits.shape[-1] and not is_all_right(logits, labels)


def converged(
    logits: Tensor, labels: Tensor, tolerance: float = 1e-8, weights: Tensor | None = None
) -> float:
    """Return the T that minimises the NLL, with log T within a tolerance.

    Without a minimum, it is an end of the range for logits of this size (``refinement.ends``).
    """
    if lies_beyond(logits, labels, weights):
        return 1 / float(refinement.inverse_temperature(logits, labels, weights=weights))

    def objective(log_temperature: float) -> float:
        return _nll(logits, labels, weights, float(np.exp(log_temperature)))

    # The NLL is convex in 1/T, so the bounded search finds its only minimum.
    limits, options = np.log(refinement.BOUNDS), {"xatol": tolerance}
    minimum = minimize_scalar(objective, bounds=limits, method="bounded", options=options)
    return at_scale(float(np.exp(minimum.x)), logits, labels, weights)


def lies_beyond(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> bool:
    """Return whether there is a best temperature that is not within ``BOUNDS``."""
    inverses = [logits.new_tensor(1 / end) for end in refinement.BOUNDS]
    at_ends = [
        refinement.derivatives(logits, labels, inverse, weights=weights)[0] for inverse in inverses
    ]
    is_inside = at_ends[0] > 0 > at_ends[1]
    return bool(refinement.has_best_temperature(logits, labels, weights)) and not is_inside


def at_scale(
    temperature: float, logits: Tensor, labels: Tensor, weights: Tensor | None = None
) -> float:
    """Move a temperature at an end of ``BOUNDS`` to that for logits of this size."""
    low, high = refinement.BOUNDS
    if low * refinement.NEAR < temperature < high / refinement.NEAR:
        return temperature
    limits = [float(end) for end in refinement.ends(logits, labels, weights)]
    factors = [limit / end for limit, end in zip(limits, refinement.BOUNDS, strict=True)]
    return temperature * factors[temperature > 1]


def _nll(logits: Tensor, labels: Tensor, weights: Tensor | None, temperature: float) -> float:
    losses = losses_of(
        lambda part, labels: -label_log_probs(part / temperature, labels), logits, labels
    )
    return float(weighted_mean(losses, weights))


def top_versus_all_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy (N,) of the top label of logits (N, C), in nats.

    Whether the top label is right has no gradient. Logarithms are at least -100.
    """
    log_probs = logits.log_softmax(-1)
    highest, first = log_probs.max(-1, keepdim=True)
    others = log_probs.scatter(-1, first, -torch.inf).logsumexp(-1)
    log_likelihoods = torch.where(first[:, 0] == labels, highest[:, 0], others)
    return -log_likelihoods.clamp_min(_LOWEST)


def top_versus_all_temperature(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None, full_fit: Fit | None = None
) -> float:
    """Return the T in ``BOUNDS``, or for a fold near the full fit, of the smallest mean loss."""

    def objective(log_temperature: float) -> float:
        scaled = logits / float(np.exp(log_temperature))
        return float(weighted_mean(losses_of(top_versus_all_losses, scaled, labels), weights))

    if full_fit is None:
        return least_temperature(objective, _SEARCHED)
    centre = log(float(full_fit.state["temperature"]))
    return least_temperature(objective, centre + _NEAR, tolerance=1e-3)


METHODS.register(
    name="temperature",
    title="temperature scaling",
    **cited("Guo et al., ICML", "guo2017calibration"),
    formula=r"""
        p = \operatorname{softmax}(z / T),
        \quad T = \operatorname{argmin}_T \sum_{i \in \mathrm{calib}}
            -\log \operatorname{softmax}(z_i / T)_{y_i},
        \quad \text{or with top versus all }
            \sum_i -[\hat y_i = y_i] \log \max_k p_{ik}
            - [\hat y_i \neq y_i] \log (1 - \max_k p_{ik})
    """,
    params=TemperatureParams,
    implementation=TemperatureScaling,
    keeps_accuracy=True,
    variants=({"fit": "grid_ece"},),
)
