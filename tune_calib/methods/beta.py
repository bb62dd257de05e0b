"""Beta calibration (Kull, Silva Filho and Flach, AISTATS 2017), for two classes.

Logistic regression on log p and -log(1 - p) of the second class. Both weights are non-negative, so
that the map is increasing. The decision threshold may shift, so that the accuracy may change.
Probabilities are clipped at 1e-12 before the logarithm. Where the fitted map classifies every
sample of ``calib`` correctly, there is no optimum, and the trial is flagged. More than two classes
are an error.
"""

from collections.abc import Mapping
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor

from tune_calib.errors import UserError
from tune_calib.methods._posthoc import SMALLEST, Fit, FittedAlone, Floats
from tune_calib.methods.temperature import is_all_right
from tune_calib.spec.methods import METHODS, cited

_TOLERANCE = 1e-6  # largest entry of the projected gradient, for features of unit size


class BetaCalibration(FittedAlone):
    """Two weights and an intercept."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        if logits.shape[-1] != 2:
            raise UserError(
                f"beta supports two classes only, got {logits.shape[-1]}; use dirichlet"
            )
        fitted, is_converged = _best(_features(logits).cpu().numpy(), labels.cpu().numpy())
        values = dict(zip(("a", "b", "c"), fitted.tolist(), strict=True))
        state = {name: logits.new_tensor(value) for name, value in values.items()}
        is_bounded = not is_all_right(self.apply(logits, state), labels)
        return Fit(state, values, is_converged and is_bounded)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        first, second = _features(logits).unbind(-1)
        margin = state["a"] * first + state["b"] * second + state["c"]
        return torch.stack([torch.zeros_like(margin), margin], -1).log_softmax(-1)


def _features(logits: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1).clamp_min(log(SMALLEST))
    return torch.stack([log_probs[:, 1], -log_probs[:, 0]], -1)


def _best(features: Floats, labels: NDArray[np.int64]) -> tuple[Floats, bool]:
    scale = np.array([*np.maximum(np.sqrt((features**2).mean(0)), SMALLEST), 1.0])
    design = np.column_stack([features, np.ones(len(features))]) / scale
    signs = 2.0 * labels - 1

    def objective(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (design @ weights)
        slopes = -signs * expit(-margins)
        return float(np.logaddexp(0, -margins).mean()), design.T @ slopes / len(labels)

    optimum = minimize(
        objective,
        scale * [1.0, 1.0, 0.0],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None), (0, None), (None, None)],
        options={"gtol": _TOLERANCE / 10, "ftol": 0, "maxiter": 1000},
    )
    # At a bound, a slope that leads outside does not count.
    slope = np.where((optimum.x <= 0) & (np.arange(3) < 2), np.minimum(optimum.jac, 0), optimum.jac)
    return optimum.x / scale, bool(np.abs(slope).max() <= _TOLERANCE)


METHODS.register(
    name="beta",
    title="beta calibration for two classes",
    **cited("Kull et al., AISTATS", "kull2017beta"),
    formula=r"q_1 = \sigma(a \log p_1 - b \log(1 - p_1) + c), \quad a, b \geq 0",
    implementation=BetaCalibration,
    keeps_accuracy=False,
    classes=2,
)
