"""Focal loss with a sample-dependent exponent, FLSD-53 (Mukhoti et al., NeurIPS 2020).

https://arxiv.org/abs/2002.09437. The exponent is larger where the true class is less probable: 5
for probabilities below 0.2, 3 below 0.5, and ``gamma`` from 0.5 on.
"""

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._functional import label_log_probs, one_minus_exp, power
from tune_calib.spec.methods import METHODS, Params, cited


class SampleDependentFocalParams(Params):
    gamma: float = Field(3.0, ge=0)
    """Exponent of samples with p[y] >= 0.5: 3 gives FLSD-53, and 2 gives FLSD-52."""


class SampleDependentFocal(NetworkMethod):
    """Mean of ``(1 - p[y]) ** gamma_i * -log p[y]``, without a gradient through ``gamma_i``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        log_probs = label_log_probs(logits, labels)
        gamma = self.exponents(log_probs.detach().exp())
        return (power(one_minus_exp(log_probs), gamma) * -log_probs).mean()

    def exponents(self, probs: Tensor) -> Tensor:
        """Return the exponent of each sample from its p[y]: (N,) to (N,)."""
        gamma = torch.full_like(probs, self.params.gamma)
        # Half-open as in the authors' loop: 0.2 itself gets exponent 3, and 0.5 gets gamma.
        return gamma.masked_fill(probs < 0.5, 3.0).masked_fill(probs < 0.2, 5.0)


METHODS.register(
    name="flsd",
    title="sample-dependent focal loss (FLSD-53)",
    **cited("Mukhoti et al., NeurIPS", "mukhoti2020calibrating"),
    formula=r"""
        L = \frac{1}{N} \sum_i (1 - p_{i,y_i})^{\gamma_i} (-\log p_{i,y_i}),
        \quad \gamma_i = \begin{cases} 5 & p_{i,y_i} < 0.2 \\
            3 & 0.2 \le p_{i,y_i} < 0.5 \\ \gamma & p_{i,y_i} \ge 0.5 \end{cases}
    """,
    params=SampleDependentFocalParams,
    implementation=SampleDependentFocal,
    recipe="focal",
)
