"""Dirichlet calibration (Kull et al., NeurIPS 2019): softmax(W log p + b), fitted on ``calib``.

The weights of the off-diagonal and intercept regularisation (ODIR) are chosen by cross-validation
on ``calib``, as the authors do. Probabilities are clipped at 1e-12 before the logarithm. A
``calib`` that lacks a class is flagged: log p is always negative and the diagonal is not penalised,
so that the probability of the class would fall without end. Here such a class keeps the scale of
the best temperature and gets no intercept, and the other classes are fitted without it.
"""

from math import log

from torch import Tensor

from tune_calib.methods._odir import Odir, OdirParams
from tune_calib.methods._posthoc import SMALLEST
from tune_calib.methods._references import KULL
from tune_calib.spec.methods import METHODS, MethodInfo


class DirichletCalibration(Odir):
    """An affine map of the log-probabilities."""

    def inputs(self, logits: Tensor) -> Tensor:
        """Return log-probabilities, at least log 1e-12."""
        return logits.log_softmax(-1).clamp_min(log(SMALLEST))


METHODS.register(
    MethodInfo(
        name="dirichlet",
        kind="posthoc",
        title="Dirichlet calibration with ODIR",
        paper="Kull et al., NeurIPS",
        year=2019,
        url="https://arxiv.org/abs/1910.12656",
        formula=r"""
            q = \operatorname{softmax}(W \log p + b),
            \quad W, b = \operatorname{argmin}_{W, b} \frac{1}{N} \sum_{i \in \mathrm{calib}}
                -\log q_{i, y_i}
                + \frac{\lambda}{C (C - 1)} \sum_{j \neq k} W_{jk}^2
                + \frac{\mu}{C} \sum_j b_j^2
        """,
        bibtex=KULL,
        params=OdirParams,
        implementation=DirichletCalibration,
        keeps_accuracy=False,
    ),
)
