"""Vector scaling (Guo et al., ICML 2017): softmax(w * z + b), fitted on ``calib``.

The NLL is minimised from the best temperature until its gradient vanishes; w may be negative. In
two cases there is no optimum, and the trial is flagged. If ``calib`` lacks a class, its intercept
would fall without end: here the class keeps the best temperature, and the other classes are fitted
without it. If the fitted transform classifies every sample correctly, its scale would grow without
end.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), w minimises the binary
cross-entropy of the confidence against whether the prediction is right, plus 0.1 mean (w - 1)^2,
and b is 0. It starts at the best temperature for that objective, and the trial is flagged where the
search does not end. The authors take 200 steps of 0.001, which do not arrive.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tune_calib.methods._affine import (
    EXACT,
    ROUGH,
    Affine,
    Ridge,
    regularised,
    scaled,
    top_versus_all_map,
)
from tune_calib.methods._posthoc import Fit, FittedAlone, TopVersusAllParams
from tune_calib.methods.temperature import has_optimum, is_all_right
from tune_calib.spec.methods import METHODS, cited

_PENALTY = 0.1  # of the mean square of w - 1, as in the authors' program


class VectorScaling(FittedAlone):
    """A scale and an intercept per class."""

    takes_weights = True

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        if self.params.top_versus_all:
            return self._fit_top_versus_all(logits, labels, None)
        may_be_found = has_optimum(logits, labels)
        tolerance = EXACT if may_be_found else ROUGH
        start = scaled(logits, labels, self.weights)
        affine = regularised(logits, labels, start, tolerance, weights=self.weights)
        is_found = affine.is_converged and may_be_found and not is_all_right(affine(logits), labels)
        return Fit(affine.state(), is_converged=is_found)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        if self.params.top_versus_all:
            return self._fit_top_versus_all(logits, labels, full_fit)
        start = Affine(full_fit.state["weight"], full_fit.state["intercept"])
        if not full_fit.is_converged:  # its scale may have grown without end
            start = scaled(logits, labels, self.weights)
        return Fit(regularised(logits, labels, start, ROUGH, weights=self.weights).state())

    def _fit_top_versus_all(self, logits: Tensor, labels: Tensor, full_fit: Fit | None) -> Fit:
        ridge = Ridge(_PENALTY / logits.shape[-1], torch.ones_like(logits[0]))
        return top_versus_all_map(logits, labels, ridge, self.weights, full_fit)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return Affine(state["weight"], state["intercept"])(logits)


METHODS.register(
    name="vector",
    title="vector scaling",
    **cited("Guo et al., ICML", "guo2017calibration"),
    formula=r"""
        p = \operatorname{softmax}(w \odot z + b),
        \quad w, b = \operatorname{argmin}_{w, b} \sum_{i \in \mathrm{calib}}
            -\log \operatorname{softmax}(w \odot z_i + b)_{y_i}
    """,
    params=TopVersusAllParams,
    implementation=VectorScaling,
    keeps_accuracy=False,
)
