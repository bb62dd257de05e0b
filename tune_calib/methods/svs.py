"""Structured vector and matrix scaling, SVS and SMS (Berta et al., AISTATS 2026).

The implementation follows the authors' program (probmetrics) with its ridge penalty: find the best
temperature, mix in the uniform distribution with weight 1 / (n + 1), then fit an affine map by the
NLL with penalties of its deviations from the identity that shrink with the number n of samples. The
map of SVS is diagonal. SMS adds off-diagonal entries, whose penalty grows with their number,
C (C - 1). The fit ends where the gradient vanishes.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import log

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._affine import EXACT, ROUGH, Affine, Ridge, identity, minimised
from tune_calib.methods._posthoc import Fit, FittedAlone
from tune_calib.methods.temperature import converged, near
from tune_calib.metrics.refinement import has_best_temperature
from tune_calib.spec.methods import METHODS, Params, cited


class StructuredParams(Params):
    lambda_intercept: float = Field(1.0, gt=0)
    """Penalty of the squared intercepts, times C / n."""
    lambda_diagonal: float = Field(1.0, gt=0)
    """Penalty of the squared deviations of the diagonal from 1, times C / n."""


class SmsParams(StructuredParams):
    lambda_off_diagonal: float = Field(1.0, gt=0)
    """Penalty of the squared off-diagonal entries, times C (C - 1) / n."""


class StructuredVectorScaling(FittedAlone):
    """A scale and an intercept per class, regularised towards a temperature."""

    takes_weights = True

    def begin(self, inputs: Tensor, samples: float) -> tuple[Ridge, Affine]:
        """Return the penalty for n samples, and the identity in the shape of the map."""
        classes = inputs.shape[-1]
        start = identity(inputs)
        diagonal = self.params.lambda_diagonal * classes / samples
        intercept = self.params.lambda_intercept * classes / samples
        return Ridge(diagonal, start.weight, intercept), start

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        temperature = converged(logits, labels, weights=self.weights)
        state, is_converged = self._fit(logits, labels, temperature, EXACT)
        is_at_bound = not has_best_temperature(logits, labels)
        return Fit(state, {"temperature": temperature}, is_converged, is_at_bound)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        temperature = near(full_fit, logits, labels, self.weights)
        return Fit(self._fit(logits, labels, temperature, ROUGH)[0])

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        inputs = _mixed(logits / state["temperature"], state["samples"])
        return Affine(state["weight"], state["intercept"])(inputs)

    def _fit(
        self, logits: Tensor, labels: Tensor, temperature: float, tolerance: float
    ) -> tuple[dict[str, Tensor], bool]:
        weights = self.weights
        samples = logits.new_tensor(len(labels)) if weights is None else weights.sum()
        inputs = _mixed(logits / temperature, samples)
        begin = self.begin(inputs, float(samples))
        affine = minimised(inputs, labels, *begin, tolerance, weights=weights)
        scalars = {"temperature": logits.new_tensor(temperature), "samples": samples}
        return {**scalars, **affine.state()}, affine.is_converged


class StructuredMatrixScaling(StructuredVectorScaling):
    """An affine map that is regularised towards a temperature."""

    def begin(self, inputs: Tensor, samples: float) -> tuple[Ridge, Affine]:
        classes = inputs.shape[-1]
        ridge, start = super().begin(inputs, samples)
        off = self.params.lambda_off_diagonal * classes * (classes - 1) / samples
        weight = torch.full((classes, classes), off, dtype=inputs.dtype, device=inputs.device)
        weight.diagonal().fill_(float(ridge.weight))
        full = start.weight.diag()
        return Ridge(weight, full, ridge.intercept), replace(start, weight=full)


def _mixed(logits: Tensor, samples: Tensor) -> Tensor:
    """Return log-probabilities mixed with the uniform distribution of weight 1 / (n + 1)."""
    weighted = logits.log_softmax(-1) + (samples / (samples + 1)).log()
    return torch.logaddexp(weighted, -(samples + 1).log() - log(logits.shape[-1]))


_PAPER = cited("Berta et al., AISTATS", "berta2026structured")

METHODS.register(
    name="svs",
    title="structured vector scaling",
    **_PAPER,
    formula=r"""
        q = \operatorname{softmax}(v \odot x + b),
        \quad x = \log\left(\tfrac{n}{n + 1} \operatorname{softmax}(z / T)
            + \tfrac{1}{n + 1} \tfrac{1}{C}\right),
        \quad v, b = \operatorname{argmin}_{v, b} \frac{1}{n} \sum_{i \in \mathrm{calib}}
            -\log q_{i, y_i}
            + \frac{C}{n} \left(\lambda_v \sum_j (v_j - 1)^2 + \lambda_b \sum_j b_j^2\right)
    """,
    params=StructuredParams,
    implementation=StructuredVectorScaling,
    keeps_accuracy=False,
)
METHODS.register(
    name="sms",
    is_quadratic=True,
    title="structured matrix scaling",
    **_PAPER,
    formula=r"""
        q = \operatorname{softmax}(W x + b),
        \quad x = \log\left(\tfrac{n}{n + 1} \operatorname{softmax}(z / T)
            + \tfrac{1}{n + 1} \tfrac{1}{C}\right),
        \quad W, b = \operatorname{argmin}_{W, b} \frac{1}{n} \sum_{i \in \mathrm{calib}}
            -\log q_{i, y_i}
            + \frac{C}{n} \left(\lambda_v \sum_j (W_{jj} - 1)^2 + \lambda_b \sum_j b_j^2
            + (C - 1) \lambda_M \sum_{j \neq k} W_{jk}^2\right)
    """,
    params=SmsParams,
    implementation=StructuredMatrixScaling,
    keeps_accuracy=False,
)
