"""Structured matrix scaling, SMS (Berta et al., AISTATS 2026): a regularised matrix.

It extends structured vector scaling by off-diagonal entries, whose penalty grows with their number,
C (C - 1). The implementation follows the authors' program (probmetrics) with its ridge penalty. The
fit ends where the gradient vanishes.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._affine import Affine, Ridge
from tune_calib.methods.svs import StructuredParams, StructuredVectorScaling
from tune_calib.spec.methods import METHODS, cited


class SmsParams(StructuredParams):
    lambda_off_diagonal: float = Field(1.0, gt=0)
    """Penalty of the squared off-diagonal entries, times C (C - 1) / n."""


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


METHODS.register(
    name="sms",
    is_quadratic=True,
    title="structured matrix scaling",
    **cited("Berta et al., AISTATS", "berta2026structured"),
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
