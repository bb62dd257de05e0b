"""Multi-class difference of confidence and accuracy (Hebbalaguppe et al., CVPR 2022).

https://arxiv.org/abs/2203.13834. The loss is a classification loss plus, averaged over classes, the
distance between the mean probability of a class in the batch and its share of the labels. The
paper's label smoothing spreads the smoothing mass over the wrong classes only; smoothing by ``ls``
with alpha C / (C - 1) is the same.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._functional import focal_terms, label_log_probs
from tune_calib.spec.methods import METHODS, Params, cited


class MdcaParams(Params):
    beta: float = Field(1.0, ge=0)
    """Weight of the difference. The authors' scripts set 1; the default of their program is 10."""
    pairing: Literal["nll", "fl", "ls_wrong_only"] = "fl"
    """Classification loss to which the difference is added.

    - `nll`: cross entropy.
    - `fl`: focal loss, as in the authors' example.
    - `ls_wrong_only`: label smoothing that spreads its mass over the wrong classes only.
    """
    gamma: float = Field(1.0, ge=0)
    """Exponent of the focal loss; used with `fl` only."""
    alpha: float = Field(0.1, ge=0, lt=1)
    """Smoothing mass; used with `ls_wrong_only` only."""


def ls_wrong_only(logits: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """Return the mean cross entropy to 1 - alpha on the true class, alpha / (C - 1) elsewhere."""
    log_probs = logits.log_softmax(1)
    right = label_log_probs(logits, labels)
    wrong = (log_probs.sum(1) - right) / (logits.shape[1] - 1)
    return -((1 - alpha) * right + alpha * wrong).mean()


def difference(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over classes of |mean probability - share of the labels|, a scalar."""
    probs = logits.softmax(1)
    shares = F.one_hot(labels, logits.shape[1]).to(probs.dtype).mean(0)
    return (probs.mean(0) - shares).abs().mean()


class Mdca(NetworkMethod):
    """A classification loss plus ``beta`` times the difference."""

    params: MdcaParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        if self.params.pairing == "fl":
            class_loss = focal_terms(logits, labels, self.params.gamma).mean()
        elif self.params.pairing == "ls_wrong_only":
            class_loss = ls_wrong_only(logits, labels, self.params.alpha)
        else:
            class_loss = F.cross_entropy(logits, labels)
        return class_loss + self.params.beta * difference(logits, labels)


METHODS.register(
    name="mdca",
    title="multi-class difference of confidence and accuracy",
    **cited("Hebbalaguppe et al., CVPR", "hebbalaguppe2022stitch"),
    formula=r"""
        L = L_{\mathrm{class}} + \beta \frac{1}{C} \sum_k \left|
            \frac{1}{N} \sum_i p_{i,k} - \frac{1}{N} \sum_i 1[y_i = k] \right|
    """,
    params=MdcaParams,
    implementation=Mdca,
    recipe="mdca",
)
