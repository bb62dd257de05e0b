"""Adaptive and conditional label smoothing (Park et al., ICCV 2023).

https://arxiv.org/abs/2308.11911. Cross entropy plus two squared penalties: on the largest logit
where it exceeds a margin, and on logits more than the margin below the largest.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, Params, as_on_tiny, cited


class AclsParams(Params):
    pos_lambda: float = Field(1.0, ge=0)
    """Weight of the penalty on the largest logit."""
    neg_lambda: float = Field(0.1, ge=0)
    """Weight of the penalty on the other logits."""
    alpha: float = Field(0.1, ge=0)
    """Weight of both penalties."""
    margin: float = Field(6.0, ge=0)
    """Size up to which logits and distances are not penalised."""
    positive_distance: Literal["raw_max", "max_minus_min"] = "raw_max"
    """Quantity of the first penalty.

    - `raw_max`: the largest logit itself, as in the authors' code and in all published re-runs.
      Adding a constant to all logits changes the loss.
    - `max_minus_min`: the distance of the largest logit from the smallest, reportedly as in the
      paper; its text could not be checked.
    """


class Acls(NetworkMethod):
    """Cross entropy plus ``alpha`` times the two penalties."""

    params: AclsParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        cross_entropy = F.cross_entropy(logits, labels)
        samples, classes = logits.shape
        params = self.params
        highest = logits.max(1, keepdim=True).values
        is_top = logits.detach() == highest.detach()  # all of several equal logits
        height = highest
        if params.positive_distance == "max_minus_min":
            height = highest - logits.min(1, keepdim=True).values
        above = is_top * F.relu(height - params.margin).square()
        # As in the authors' code, no gradient flows through the maximum here, unlike above.
        below = ~is_top * F.relu(highest.detach() - logits - params.margin).square()
        others = samples * (classes - 1)
        penalty = params.pos_lambda * above.sum() / samples
        penalty = penalty + params.neg_lambda * below.sum() / others
        return cross_entropy + params.alpha * penalty


METHODS.register(
    name="acls",
    title="adaptive and conditional label smoothing",
    **cited("Park et al., ICCV", "park2023acls"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i}
            + \alpha (\lambda_+ A_i + \lambda_- B_i) \Big],
        \quad A_i = \sum_k t_{i,k} [\max_l z_{i,l} - m]_+^2,
        \quad B_i = \frac{1}{C - 1} \sum_k (1 - t_{i,k})
            [\operatorname{sg}(\max_l z_{i,l}) - z_{i,k} - m]_+^2,
        \quad t_{i,k} = 1[z_{i,k} = \max_l z_{i,l}]
    """,
    params=AclsParams,
    implementation=Acls,
    recipe="acls",
    dataset_defaults=as_on_tiny(margin=10.0),
)
