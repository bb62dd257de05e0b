"""Vector scaling (Guo et al., ICML 2017): softmax(w * z + b), fitted on ``calib``.

The NLL is minimised from the best temperature until its gradient vanishes; w may be negative. In
two cases there is no optimum, and the trial is flagged. If ``calib`` lacks a class, its intercept
would fall without end: here the class keeps the best temperature, and the other classes are fitted
without it. If the fitted transform classifies every sample correctly, its scale would grow without
end.
"""

from collections.abc import Mapping

from torch import Tensor

from tune_calib.methods._affine import EXACT, ROUGH, Affine, diagonal, scaled
from tune_calib.methods._posthoc import UNCONVERGED, Fit, FittedAlone
from tune_calib.methods.temperature import has_optimum, is_all_right
from tune_calib.spec.methods import METHODS, cited


class VectorScaling(FittedAlone):
    """A scale and an intercept per class."""

    takes_weights = True

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        may_be_found = has_optimum(logits, labels)
        tolerance = EXACT if may_be_found else ROUGH
        start = scaled(logits, labels, self.weights)
        affine = diagonal(logits, labels, start, tolerance, weights=self.weights)
        is_found = affine.is_converged and may_be_found and not is_all_right(affine(logits), labels)
        flags = frozenset() if is_found else frozenset({UNCONVERGED})
        return Fit(affine.state(), flags=flags)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit) -> Fit:
        start = Affine(full_fit.state["weight"], full_fit.state["intercept"])
        if UNCONVERGED in full_fit.flags:  # its scale may have grown without end
            start = scaled(logits, labels, self.weights)
        return Fit(diagonal(logits, labels, start, ROUGH, weights=self.weights).state())

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
    implementation=VectorScaling,
    keeps_accuracy=False,
)
