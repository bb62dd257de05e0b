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

from torch import Tensor

from tune_calib.methods._posthoc import (
    CurveMap,
    Fit,
    TopVersusAllParams,
    interpolate,
    isotonic_curves,
)
from tune_calib.spec.methods import METHODS, cited


class IsotonicCalibration(CurveMap):
    """An increasing curve per class."""

    takes_weights = True

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        return Fit({"knots": isotonic_curves(*self.events(logits, labels), self.weights)})

    def values(self, probs: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return interpolate(probs, state["knots"])


METHODS.register(
    name="isotonic",
    title="isotonic regression, one versus rest",
    **cited("Zadrozny and Elkan, KDD", "zadrozny2002transforming"),
    formula=r"""
        q_k = \frac{f_k(p_k)}{\sum_j f_j(p_j)},
        \quad f_k = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
            \left(f(p_{ik}) - [y_i = k]\right)^2
    """,
    params=TopVersusAllParams,
    implementation=IsotonicCalibration,
    keeps_accuracy=False,
)
