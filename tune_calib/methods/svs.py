"""Structured vector scaling, SVS (Berta et al., AISTATS 2026): a regularised diagonal map.

The implementation follows the authors' program (probmetrics): find the best temperature, mix in the
uniform distribution with weight 1 / (n + 1), then fit v and b by the NLL with ridge penalties that
shrink with the number n of samples. The fit ends where the gradient vanishes.
"""

from torch import Tensor

from tune_calib.methods._affine import Affine, Ridge
from tune_calib.methods._references import BERTA
from tune_calib.methods._structured import Structured, StructuredParams, diagonal
from tune_calib.spec.methods import METHODS, MethodInfo


class StructuredVectorScaling(Structured):
    """A scale and an intercept per class, regularised towards a temperature."""

    def begin(self, inputs: Tensor) -> tuple[Ridge, Affine]:
        """Return the penalties of diagonal and intercept, and the identity as a diagonal map."""
        return diagonal(inputs, self.params)


METHODS.register(
    MethodInfo(
        name="svs",
        kind="posthoc",
        title="structured vector scaling",
        paper="Berta et al., AISTATS",
        year=2026,
        url="https://arxiv.org/abs/2511.03685",
        formula=r"""
            q = \operatorname{softmax}(v \odot x + b),
            \quad x = \log\left(\tfrac{n}{n + 1} \operatorname{softmax}(z / T)
                + \tfrac{1}{n + 1} \tfrac{1}{C}\right),
            \quad v, b = \operatorname{argmin}_{v, b} \frac{1}{n} \sum_{i \in \mathrm{calib}}
                -\log q_{i, y_i}
                + \frac{C}{n} \left(\lambda_v \sum_j (v_j - 1)^2 + \lambda_b \sum_j b_j^2\right)
        """,
        bibtex=BERTA,
        params=StructuredParams,
        implementation=StructuredVectorScaling,
        keeps_accuracy=False,
    ),
)
