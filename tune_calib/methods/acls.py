"""Adaptive and conditional label smoothing (Park et al., ICCV 2023).

https://arxiv.org/abs/2308.11911. Cross entropy, and squared penalties: on a largest logit above a
margin, and on logits that lie more than the margin below the largest. The default follows the
authors' code, whose first penalty is on the raw logit (adding a constant to all logits changes it).

Own recipe: that of MbLS's code: SGD on the mean loss, clipped at 2, the epoch of best validation
accuracy, and on CIFAR-10 without the incomplete last batch.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._recipes import MARGIN, MARGIN_ON
from tune_calib.registry import METHODS, MethodInfo, Params


class AclsParams(Params):
    """Hyper-parameters.

    Attributes:
        pos_lambda: weight of the penalty on the largest logit, >= 0.
        neg_lambda: weight of the penalty on the others, >= 0.
        alpha: weight of both, >= 0.
        margin: what costs nothing, >= 0.
        positive_distance: ``raw_max``: the largest logit itself; ``max_minus_min``: its distance
            to the smallest, as in the paper.
    """

    pos_lambda: float = Field(1.0, ge=0)
    neg_lambda: float = Field(0.1, ge=0)
    alpha: float = Field(0.1, ge=0)
    margin: float = Field(6.0, ge=0)
    positive_distance: Literal["raw_max", "max_minus_min"] = "raw_max"


class Acls(NetworkMethod):
    """Cross entropy plus ``alpha`` times the two penalties."""

    params: AclsParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Mean cross entropy, in nats, plus the weighted penalties."""
        return F.cross_entropy(logits, labels) + self.params.alpha * self.penalty(logits)

    def penalty(self, logits: Tensor) -> Tensor:
        """Weighted sum of both penalties, a scalar; every tied maximum counts as largest."""
        samples, classes = logits.shape
        params = self.params
        highest = logits.max(1, keepdim=True).values
        is_top = logits.detach() == highest.detach()
        height = highest
        if params.positive_distance == "max_minus_min":
            height = highest - logits.min(1, keepdim=True).values
        above = is_top * F.relu(height - params.margin).square()
        below = ~is_top * F.relu(highest.detach() - logits - params.margin).square()
        others = samples * (classes - 1)
        return params.pos_lambda * above.sum() / samples + params.neg_lambda * below.sum() / others


METHODS.register(
    MethodInfo(
        name="acls",
        kind="network",
        title="adaptive and conditional label smoothing",
        paper="Park et al., ICCV",
        year=2023,
        url="https://arxiv.org/abs/2308.11911",
        params=AclsParams,
        implementation=Acls,
        slot_defaults=MARGIN,
        dataset_slot_defaults=MARGIN_ON,
        dataset_defaults={"tiny_imagenet": {"margin": 10.0}},
    ),
)
