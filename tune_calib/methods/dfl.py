"""Dual focal loss (Tao et al., ICML 2023, https://arxiv.org/abs/2305.13665).

Focal loss whose weight also depends on the largest probability below that of the true class. The
default exponent depends on the backbone (``GAMMA``), whichever recipe trains it.
"""

from pydantic import Field
from torch import Tensor

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._functional import one_minus_exp, power
from tune_calib.spec.methods import METHODS, Params, as_on_tiny, cited

GAMMA = {
    "cifar10": {"gamma": 5.0},
    "cifar10/resnet110": {"gamma": 4.5},
    "cifar10/wrn26_10": {"gamma": 2.6},
    "cifar100": {"gamma": 5.0},
    "cifar100/resnet110": {"gamma": 6.1},
    "cifar100/wrn26_10": {"gamma": 3.9},
    "cifar100/densenet121": {"gamma": 3.4},
    **as_on_tiny(gamma=2.3),
}
"""Values tuned in the paper for each backbone. Other backbones use the value of ResNet-50."""


class DualFocalParams(Params):
    gamma: float = Field(5.0, ge=0)
    """Exponent; 0 gives the cross entropy."""


class DualFocal(NetworkMethod):
    """Mean of ``(1 - p[y] + q) ** gamma * -log p[y]``, with q the largest ``p[k] < p[y]`` or 0."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        log_probs = logits.log_softmax(1)
        right = log_probs.gather(1, labels[:, None])
        probs = log_probs.exp()
        # Strictly below: classes as probable as the true class do not count, and q = 0 where the
        # true class is the least probable.
        below = probs * (probs < right.exp())
        # Not amax, which shares the gradient among ties. topk gives it to the same class as the
        # authors' code.
        runner_up = below.topk(1, 1).values
        return (power(one_minus_exp(right) + runner_up, self.params.gamma) * -right).mean()


METHODS.register(
    name="dfl",
    title="dual focal loss",
    **cited("Tao et al., ICML", "tao2023dual"),
    formula=r"""
        L = \frac{1}{N} \sum_i (1 - p_{i,y_i} + q_i)^\gamma (-\log p_{i,y_i}),
        \quad q_i = \max \{ p_{i,k} : p_{i,k} < p_{i,y_i} \} \text{ or } 0
    """,
    params=DualFocalParams,
    implementation=DualFocal,
    recipe="focal",
    dataset_defaults=GAMMA,
)
