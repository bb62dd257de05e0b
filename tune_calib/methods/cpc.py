"""Calibration by pairwise constraints (Cheng and Vasconcelos, CVPR 2022).

The loss is the cross entropy plus two terms: binary discrimination of the true class from each
other class, and binary exclusion, by which neither of two wrong classes should win. As in the code
(by-liu/CALS), the second term runs over ordered pairs and includes the pair of each class with
itself. With two classes there is no pair of wrong classes, and the term is 0 (the code divides by
0).
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, Params, cited

SHIFT = 1e-10  # from the authors' code, so that the terms are equal


class PairwiseConstraintsParams(Params):
    lambda_bdc: float = Field(0.1, ge=0)
    """Weight of the binary discrimination constraints."""
    lambda_bec: float = Field(1.0, ge=0)
    """Weight of the binary exclusion constraints."""


def exclusion(wrong: Tensor) -> Tensor:
    """Return the mean binary exclusion term of wrong classes' logits (N, C - 1); 0 for C = 2."""
    samples, classes = wrong.shape
    if classes < 2:
        return wrong.new_zeros(())
    # Pairs of a class with itself add the constant 0.5 log 2 / (C - 2). The authors' code has it
    # too, so that losses can be compared.
    total = -0.5 * F.logsigmoid(wrong[:, :, None] - wrong[:, None, :] + SHIFT).sum()
    # As in the authors' code, the sum is divided by the number of pairs of different classes,
    # although it includes pairs of a class with itself.
    return total / (samples * classes * (classes - 1))


class PairwiseConstraints(NetworkMethod):
    """Cross entropy plus the weighted means of both constraints."""

    params: PairwiseConstraintsParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        columns = torch.arange(logits.shape[1] - 1, device=logits.device)
        wrong = logits.gather(1, columns + (columns >= labels[:, None]))
        discrimination = -F.logsigmoid(logits.gather(1, labels[:, None]) - wrong).mean()
        loss = F.cross_entropy(logits, labels) + self.params.lambda_bdc * discrimination
        return loss + self.params.lambda_bec * exclusion(wrong)


METHODS.register(
    name="cpc",
    title="calibration by pairwise constraints",
    **cited(
        "Cheng and Vasconcelos, CVPR",
        "cheng2022pairwise",
        url="https://openaccess.thecvf.com/content/CVPR2022/html/Cheng_Calibrating_Deep_"
        "Neural_Networks_by_Pairwise_Constraints_CVPR_2022_paper.html",
    ),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i} + \lambda_{\mathrm{bdc}} D_i
            + \lambda_{\mathrm{bec}} E_i \Big],
        \quad D_i = \frac{1}{C - 1} \sum_{k \ne y_i} -\log \sigma(z_{i,y_i} - z_{i,k}),
        \quad E_i = \frac{1}{(C - 1)(C - 2)} \sum_{j, k \ne y_i}
            -\tfrac{1}{2} \log \sigma(z_{i,j} - z_{i,k})
    """,
    params=PairwiseConstraintsParams,
    implementation=PairwiseConstraints,
    recipe="acls",
)
