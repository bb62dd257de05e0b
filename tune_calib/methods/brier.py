"""Brier score as a loss (Brier, 1950; for calibration: Mukhoti et al., NeurIPS 2020).

https://arxiv.org/abs/2002.09437. The loss is the squared distance of the probabilities from the
one-hot label, summed over classes and averaged over samples. Unlike the other losses of that paper,
it is never summed over the batch, which its recipe takes into account.
"""

from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, cited


class Brier(NetworkMethod):
    """Mean of ``sum_k (p[k] - 1[k = y]) ** 2``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        onehot = F.one_hot(labels, logits.shape[1])
        return (logits.softmax(1) - onehot).square().sum(1).mean()


METHODS.register(
    name="brier",
    title="Brier score",
    **cited("Mukhoti et al., NeurIPS", "brier1950verification", "mukhoti2020calibrating"),
    formula=r"L = \frac{1}{N} \sum_i \sum_k (p_{i,k} - 1[k = y_i])^2",
    implementation=Brier,
    recipe="focal",
)
