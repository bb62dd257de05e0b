"""Label smoothing (Szegedy et al., CVPR 2016; calibration: Müller et al., NeurIPS 2019).

A share ``alpha`` of the target mass is spread evenly over all classes, including the true one.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, Params, cited


class LabelSmoothingParams(Params):
    alpha: float = Field(0.05, ge=0, lt=1)
    """Smoothing mass, spread over all classes."""


class LabelSmoothing(NetworkMethod):
    """Mean of ``(1 - alpha) * -log p[y] + alpha * mean_k(-log p[k])``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        # As in the code of Mukhoti, MbLS and ACLS. MDCA's code spreads the mass over the wrong
        # classes only (ls_wrong_only).
        return F.cross_entropy(logits, labels, label_smoothing=self.params.alpha)


METHODS.register(
    name="ls",
    title="label smoothing",
    **cited("Müller et al., NeurIPS", "szegedy2016rethinking", "mueller2019when"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ (1 - \alpha) (-\log p_{i,y_i})
            + \alpha \frac{1}{C} \sum_k -\log p_{i,k} \Big]
    """,
    params=LabelSmoothingParams,
    implementation=LabelSmoothing,
    recipe="focal",
    dataset_defaults={"cifar100": {"alpha": 0.1}},
)
