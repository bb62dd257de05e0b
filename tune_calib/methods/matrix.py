"""Matrix scaling (Guo et al., ICML 2017) with ODIR: softmax(W z + b), fitted on ``calib``.

The off-diagonal and intercept regularisation (ODIR) is that of Kull et al. (NeurIPS 2019), who have
matrix scaling with it too; Guo et al. have none: `off_diagonal` = 0 and `intercept` = 0. With many
classes theirs overfits badly, and where it gets every sample of ``calib`` right there is no optimum
to reach, so that it is flagged. So is a ``calib`` that lacks a class: the diagonal, which is free,
would drive it out for ever. Here such a class keeps the scale of the best temperature, and no
intercept, and the other classes are fitted among themselves.
"""

from torch import Tensor

from tune_calib.methods._odir import Odir, OdirParams
from tune_calib.methods._references import GUO, KULL
from tune_calib.spec.methods import METHODS, MethodInfo


class MatrixScaling(Odir):
    """An affine map of the logits."""

    def inputs(self, logits: Tensor) -> Tensor:
        """Return the logits unchanged."""
        return logits


METHODS.register(
    MethodInfo(
        name="matrix",
        kind="posthoc",
        title="matrix scaling with ODIR",
        paper="Guo et al., ICML",
        year=2017,
        url="https://arxiv.org/abs/1706.04599",
        formula=r"""
            p = \operatorname{softmax}(W z + b),
            \quad W, b = \operatorname{argmin}_{W, b} \frac{1}{N} \sum_{i \in \mathrm{calib}}
                -\log \operatorname{softmax}(W z_i + b)_{y_i}
                + \frac{\lambda}{C (C - 1)} \sum_{j \neq k} W_{jk}^2
                + \frac{\mu}{C} \sum_j b_j^2
        """,
        bibtex=GUO + KULL,
        params=OdirParams,
        implementation=MatrixScaling,
        keeps_accuracy=False,
    ),
)
