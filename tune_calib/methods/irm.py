"""Multi-class isotonic regression, IRM (Zhang et al., ICML 2020): one rising curve for all classes.

All N C probabilities of ``calib`` against whether each is of the label; the rows are normalised.
A slope of 1e-9 makes the curve strictly rising, so that the order of the classes stays; where
rounding undoes that, the first class keeps a lead of a millionth. What comes out below 1e-12 is
raised to it.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import one_hot

from tune_calib.methods._base import NoParams
from tune_calib.methods._curves import interpolated, isotonic
from tune_calib.methods._posthoc import Fit, FittedAlone, keep_first, logarithm
from tune_calib.methods._references import ZHANG
from tune_calib.spec.methods import METHODS, MethodInfo

_SLOPE = 1e-9


class MulticlassIsotonicCalibration(FittedAlone):
    """A rising curve that all classes share."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        """Fit the curve."""
        probs = logits.softmax(-1).flatten().cpu().numpy()
        targets = one_hot(labels, logits.shape[-1]).flatten().double().cpu().numpy()
        return Fit({"knots": isotonic(probs, targets).to(logits.device)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Log-probabilities of the normalised curve; the first class stays."""
        probs = logits.softmax(-1)
        values = interpolated(probs.reshape(1, -1), state["knots"][None]).reshape(probs.shape)
        return keep_first(logarithm(values + _SLOPE * probs), logits)


METHODS.register(
    MethodInfo(
        name="irm",
        kind="posthoc",
        title="isotonic regression of all classes, which keeps their order",
        paper="Zhang et al., ICML",
        year=2020,
        url="https://arxiv.org/abs/2003.07329",
        formula=r"""
            q_k = \frac{f(p_k) + \epsilon p_k}{\sum_j f(p_j) + \epsilon p_j},
            \quad f = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
                \sum_k \left(f(p_{ik}) - [y_i = k]\right)^2, \quad \epsilon = 10^{-9}
        """,
        bibtex=ZHANG,
        params=NoParams,
        implementation=MulticlassIsotonicCalibration,
        keeps_accuracy=True,
    ),
)
