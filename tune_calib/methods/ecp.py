"""Entropy (confidence) penalty (Pereyra et al., ICLR workshop 2017).

https://arxiv.org/abs/1701.06548. Cross entropy minus a share of the entropy. By default the
entropy is the mean over classes, as in the code all published comparisons rest on (by-liu/MbLS);
the paper sums it, so that its weight is C times larger.

Own recipe: that of the code: SGD on the mean loss, clipped at 2, the epoch of best validation
accuracy, and on CIFAR-10 without the incomplete last batch.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params

SMALLEST = 1e-10
"""Probabilities are clipped to [SMALLEST, 1 - SMALLEST] in the entropy."""


class EntropyPenaltyParams(Params):
    """Hyper-parameters."""

    alpha: float = Field(0.1, ge=0)
    """Weight of the entropy."""
    entropy_reduction: Literal["mean_classes", "sum_classes"] = "mean_classes"
    """How the terms of the entropy are put together.

    - `mean_classes`: the mean over classes, as in the code that all published comparisons rest
      on; `alpha` was set for it.
    - `sum_classes`: the sum over classes, as in the paper: the weight is C times larger.
    """


class EntropyPenalty(NetworkMethod):
    """Mean of ``-log p[y]`` minus ``alpha`` times the entropy."""

    params: EntropyPenaltyParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Return the mean cross entropy, in nats, minus the weighted entropy."""
        # Clipped as in the code: else a probability of 0 would give 0 times infinity.
        probs = logits.softmax(1).clamp(SMALLEST, 1 - SMALLEST)
        terms = -probs * probs.log()
        total = self.params.entropy_reduction == "sum_classes"
        entropy = (terms.sum(1) if total else terms.mean(1)).mean()
        return F.cross_entropy(logits, labels) - self.params.alpha * entropy


PEREYRA = r"""
@inproceedings{pereyra2017regularizing,
  author = {Pereyra, Gabriel and Tucker, George and Chorowski, Jan and Kaiser, {\L}ukasz and
    Hinton, Geoffrey},
  title = {Regularizing Neural Networks by Penalizing Confident Output Distributions},
  booktitle = {International Conference on Learning Representations, Workshop Track},
  year = {2017},
  url = {https://arxiv.org/abs/1701.06548},
}
"""

METHODS.register(
    MethodInfo(
        name="ecp",
        kind="network",
        title="entropy penalty",
        paper="Pereyra et al., ICLR workshop",
        year=2017,
        url="https://arxiv.org/abs/1701.06548",
        formula=r"""
            L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i}
                - \alpha \frac{1}{C} \sum_k -p_{i,k} \log p_{i,k} \Big]
        """,
        bibtex=PEREYRA,
        params=EntropyPenaltyParams,
        implementation=EntropyPenalty,
        recipe="acls",
    ),
)
