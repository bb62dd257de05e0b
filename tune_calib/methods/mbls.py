"""Margin-based label smoothing (Liu et al., CVPR 2022, https://arxiv.org/abs/2111.15430).

Cross entropy plus a penalty on every logit more than a margin below the largest. The penalty is
averaged over classes, as in the authors' code (the paper writes a sum); ``alpha`` was tuned for the
mean.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._functional import margin_excess
from tune_calib.spec.methods import METHODS, Params, as_on_tiny, cited


class MarginLabelSmoothingParams(Params):
    margin: float = Field(6.0, ge=0)
    """Distance from the largest logit up to which a logit is not penalised."""
    alpha: float = Field(0.1, ge=0)
    """Weight of the penalty."""


class MarginLabelSmoothing(NetworkMethod):
    """Mean of ``-log p[y] + alpha * mean_k relu(max z - z[k] - margin)``."""

    params: MarginLabelSmoothingParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        penalty = margin_excess(logits, self.params.margin).mean()
        return F.cross_entropy(logits, labels) + self.params.alpha * penalty


METHODS.register(
    name="mbls",
    title="margin-based label smoothing",
    **cited("Liu et al., CVPR", "liu2022devil"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i}
            + \alpha \frac{1}{C} \sum_k [\max_l z_{i,l} - z_{i,k} - m]_+ \Big]
    """,
    params=MarginLabelSmoothingParams,
    implementation=MarginLabelSmoothing,
    recipe="acls",
    dataset_defaults=as_on_tiny(margin=10.0),
)
