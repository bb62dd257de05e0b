"""Multi-class isotonic regression, IRM (Zhang et al., ICML 2020): one curve for all classes.

An increasing curve is fitted to all N C probabilities of ``calib``, with a target of 1 for the true
class and 0 for the others. The rows of the result are normalised. An added slope of 1e-9 makes the
curve strictly increasing, which preserves the order of the classes. Where rounding would undo this,
the top class keeps a lead of a millionth. Results below 1e-12 are raised to it.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._posthoc import Fit, FittedAlone, interpolate, isotonic, keep_top, logarithm
from tune_calib.spec.methods import METHODS, cited

_SLOPE = 1e-9


class MulticlassIsotonicCalibration(FittedAlone):
    """An increasing curve shared by all classes."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        probs = logits.softmax(-1).flatten().cpu().numpy()
        targets = F.one_hot(labels, logits.shape[-1]).bool().flatten().cpu().numpy()
        return Fit({"knots": isotonic(probs, targets, np.ones(len(probs))).to(logits.device)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        probs = logits.softmax(-1)
        values = interpolate(probs.reshape(1, -1), state["knots"][None]).reshape(probs.shape)
        return keep_top(logarithm(values + _SLOPE * probs), logits)


METHODS.register(
    name="irm",
    title="order-preserving isotonic regression over all classes",
    **cited("Zhang et al., ICML", "zhang2020mix"),
    formula=r"""
        q_k = \frac{f(p_k) + \epsilon p_k}{\sum_j f(p_j) + \epsilon p_j},
        \quad f = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
            \sum_k \left(f(p_{ik}) - [y_i = k]\right)^2, \quad \epsilon = 10^{-9}
    """,
    implementation=MulticlassIsotonicCalibration,
    keeps_accuracy=True,
)
