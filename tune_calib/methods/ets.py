"""Ensemble temperature scaling, ETS (Zhang et al., ICML 2020).

First the temperature is fitted on ``calib``, then the weights of a mixture of the scaled, the
unscaled and the uniform distribution, both with the same loss. For the Brier score, the weights
have a closed form (the best over all faces of the simplex). For the NLL, a solver finds them, and
the trial is flagged unless the result is within 1e-6 nats of the minimum. Probabilities below 1e-12
are raised to it. Where the weight of the uniform distribution hides the order of the classes, the
top class keeps a lead of a millionth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import log
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from tune_calib.methods._posthoc import (
    SMALLEST,
    Fit,
    FittedAlone,
    Floats,
    keep_top,
    least_temperature,
    losses_of,
)
from tune_calib.methods.temperature import at_scale, converged, lies_beyond
from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.refinement import BOUNDS, NEAR, folds, has_best_temperature, parts_of
from tune_calib.spec.methods import METHODS, Params, cited

_GRID = np.linspace(log(BOUNDS[0]), log(BOUNDS[1]), 41)  # of log T
_FOLD_TOLERANCE = 1e-3  # of log T for cross-validation
_GAP = 1e-6  # nats above the smallest NLL
_FACES = [*combinations(range(3), 1), *combinations(range(3), 2), *combinations(range(3), 3)]


class EtsParams(Params):
    loss: Literal["brier", "nll"] = "brier"
    """Loss that temperature and weights minimise on `calib`; the authors' program supports both.

    - `brier`: the Brier score, the default of their program (`mse`).
    - `nll`: the NLL.
    """


class EnsembleTemperatureScaling(FittedAlone):
    """A temperature and three weights."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        if self.params.loss == "nll":
            return self._fit_weights(logits, labels, converged(logits, labels))
        logits = logits - logits.amax(-1, keepdim=True)
        # The grid only shows where to search: single precision suffices, and takes half the time.
        single = logits.float()
        grid = [brier_scores(point, single, labels) for point in _GRID]
        fit = self._fit_weights(logits, labels, _by_brier(logits, labels, grid, 1e-8))
        if not self.checks_harm:
            return fit
        of_folds = []
        for held in folds(labels):
            fold, scores = (logits[~held], labels[~held]), [values[~held] for values in grid]
            temperature = _by_brier(*fold, scores, _FOLD_TOLERANCE)
            of_folds.append(self._fit_weights(*fold, temperature).state)
        return replace(fit, of_folds=of_folds)

    def _fit_weights(self, logits: Tensor, labels: Tensor, temperature: float) -> Fit:
        by_nll = self.params.loss == "nll"
        weights, gap = (_of_nll if by_nll else _of_brier)(logits, labels, temperature)
        is_at_end = not by_nll and not BOUNDS[0] * NEAR < temperature < BOUNDS[1] / NEAR
        is_at_end &= not lies_beyond(logits, labels)
        is_at_end |= not has_best_temperature(logits, labels)
        names = ("weight_scaled", "weight_unscaled", "weight_uniform")
        record = dict(zip(names, weights.tolist(), strict=True))
        state = {
            "temperature": logits.new_tensor(temperature),
            "weights": torch.from_numpy(weights).to(logits.device),
        }
        return Fit(state, {"temperature": temperature, **record}, gap <= _GAP, is_at_end)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        scaled, unscaled, uniform = state["weights"]
        mixed = (logits / state["temperature"]).softmax(-1) * scaled
        mixed = mixed + logits.softmax(-1) * unscaled + uniform / logits.shape[-1]
        return keep_top(mixed.clamp_min(SMALLEST).log(), logits)


def _mixed_parts(logits: Tensor, temperature: float) -> Tensor:
    plain = logits.softmax(-1)
    uniform = torch.full_like(plain, 1 / plain.shape[-1])
    return torch.stack([(logits / temperature).softmax(-1), plain, uniform])


def _by_brier(logits: Tensor, labels: Tensor, scores: Sequence[Tensor], tolerance: float) -> float:
    def score(log_temperature: float) -> float:
        return float(brier_scores(log_temperature, logits, labels).mean())

    # The score is flat where all probabilities are 0 or 1, but the NLL is not.
    if lies_beyond(logits, labels):
        return least_temperature(score, log(converged(logits, labels)) + _GRID, tolerance)
    at_grid = [float(values.double().mean()) for values in scores]
    return at_scale(least_temperature(score, _GRID, tolerance, at_grid), logits, labels)


def brier_scores(log_temperature: float, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the Brier scores (N,) of logits whose largest one is 0 in each row."""

    def scores(part: Tensor, labels: Tensor) -> Tensor:
        # With ten classes, ``softmax`` takes several times as long.
        errors = (part / float(np.exp(log_temperature))).exp_()
        errors /= errors.sum(-1, keepdim=True)
        errors[torch.arange(len(errors), device=errors.device), labels] -= 1
        return errors.square_().sum(-1)

    return losses_of(scores, logits, labels)


def _of_brier(logits: Tensor, labels: Tensor, temperature: float) -> tuple[Floats, float]:
    products = logits.new_zeros(3, 3)
    for rows in parts_of(logits):
        errors = _mixed_parts(logits[rows], temperature)
        errors[:, torch.arange(errors.shape[1], device=labels.device), labels[rows]] -= 1
        products += errors.flatten(1) @ errors.flatten(1).T
    gram = (products / len(labels)).cpu().numpy()
    inside = []
    for face in _FACES:
        # The stationary point of w G w on the plane of a face, which may lie outside the face.
        corners = gram[np.ix_(face, face)]
        stationary_weights = np.linalg.lstsq(corners, np.ones(len(face)), rcond=None)[0]
        total = stationary_weights.sum()
        if total <= 0:
            continue
        weights = np.zeros(len(gram))
        weights[list(face)] = stationary_weights / total
        if weights.min() >= 0:
            inside.append(weights)
    return min(inside, key=lambda weights: float(weights @ gram @ weights)), 0.0


def _of_nll(logits: Tensor, labels: Tensor, temperature: float) -> tuple[Floats, float]:
    parts = []
    for rows in parts_of(logits):
        parts.append(at_labels(_mixed_parts(logits[rows], temperature), labels[rows]))
    target_probs: Floats = torch.cat(parts, -1).clamp_min(SMALLEST).cpu().numpy()

    def objective(weights: Floats) -> tuple[float, Floats]:
        mixed = np.maximum(weights @ target_probs, SMALLEST)
        return float(-np.log(mixed).mean()), -(target_probs / mixed).mean(1)

    optimum = minimize(
        objective,
        np.full(3, 1 / 3),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 200},
    )
    weights: Floats = optimum.x.clip(0, 1)
    weights /= weights.sum()
    return weights, float(-objective(weights)[1].min() - 1)


METHODS.register(
    name="ets",
    title="ensemble temperature scaling",
    **cited("Zhang et al., ICML", "zhang2020mix"),
    formula=r"""
        q = w_1 \operatorname{softmax}(z / T) + w_2 \operatorname{softmax}(z)
            + w_3 \tfrac{1}{C},
        \quad w_1 + w_2 + w_3 = 1, \quad w \geq 0
    """,
    params=EtsParams,
    implementation=EnsembleTemperatureScaling,
    keeps_accuracy=True,
)
