"""Entropy (confidence) penalty (Pereyra et al., ICLR workshop 2017).

https://arxiv.org/abs/1701.06548. The loss is the cross entropy minus the weighted entropy of the
prediction.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, Params, cited

SMALLEST = 1e-10  # in the entropy, probabilities are clipped to [SMALLEST, 1 - SMALLEST]


class EntropyPenaltyParams(Params):
    alpha: float = Field(0.1, ge=0)
    """Weight of the entropy."""
    entropy_reduction: Literal["mean_classes", "sum_classes"] = "mean_classes"
    """How the terms of the entropy are reduced.

    - `mean_classes`: the mean over classes, as in the code behind all published comparisons
      (by-liu/MbLS), for which `alpha` was chosen.
    - `sum_classes`: the sum over classes, as in the paper, which makes the weight C times larger.
    """


class EntropyPenalty(NetworkMethod):
    """Mean of ``-log p[y]`` minus ``alpha`` times the entropy."""

    params: EntropyPenaltyParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        # Clipped as in the code: a probability of 0 would give 0 times infinity.
        probs = logits.softmax(1).clamp(SMALLEST, 1 - SMALLEST)
        terms = -probs * probs.log()
        is_summed = self.params.entropy_reduction == "sum_classes"
        entropy = terms.sum(1) if is_summed else terms.mean(1)
        return F.cross_entropy(logits, labels) - self.params.alpha * entropy.mean()


METHODS.register(
    name="ecp",
    title="entropy penalty",
    **cited("Pereyra et al., ICLR workshop", "pereyra2017regularizing"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i}
            - \alpha \frac{1}{C} \sum_k -p_{i,k} \log p_{i,k} \Big]
    """,
    params=EntropyPenaltyParams,
    implementation=EntropyPenalty,
    recipe="acls",
)
