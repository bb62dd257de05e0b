"""Matrix scaling (Guo et al., ICML 2017) with ODIR: softmax(W z + b), fitted on ``calib``.

The off-diagonal and intercept regularisation (ODIR) is that of Kull et al. (NeurIPS 2019), who also
apply it to matrix scaling. Guo et al. use none: `off_diagonal` = 0 and `intercept` = 0. Without
regularisation the method overfits badly with many classes. Where it classifies every sample of
``calib`` correctly, there is no optimum, and the trial is flagged. So is a ``calib`` that lacks a
class, which is treated as in Dirichlet calibration.
"""

from torch import Tensor

from tune_calib.methods.dirichlet import DirichletCalibration, OdirParams
from tune_calib.spec.methods import METHODS, cited


class MatrixScaling(DirichletCalibration):
    """An affine map of the logits, not of the log-probabilities."""

    def inputs(self, logits: Tensor) -> Tensor:
        return logits


METHODS.register(
    name="matrix",
    is_quadratic=True,
    title="matrix scaling with ODIR",
    **cited(
        "Guo et al., ICML",
        "guo2017calibration",
        "kull2019beyond",
        year=2017,
        url="https://arxiv.org/abs/1706.04599",
    ),
    formula=r"""
        p = \operatorname{softmax}(W z + b),
        \quad W, b = \operatorname{argmin}_{W, b} \frac{1}{N} \sum_{i \in \mathrm{calib}}
            -\log \operatorname{softmax}(W z_i + b)_{y_i}
            + \frac{\lambda}{C (C - 1)} \sum_{j \neq k} W_{jk}^2
            + \frac{\mu}{C} \sum_j b_j^2
    """,
    params=OdirParams,
    implementation=MatrixScaling,
    keeps_accuracy=False,
)
