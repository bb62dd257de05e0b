"""Cross entropy, the uncalibrated baseline ("vanilla") of every paper.

Own recipe, from the code of Mukhoti et al. (torrvision/focal_calibration): SGD on the loss summed
over the batch, with gradients clipped at 2. It keeps the last epoch.
"""

from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod, NoParams
from tune_calib.methods._references import GUO
from tune_calib.spec.methods import METHODS, MethodInfo


class CrossEntropy(NetworkMethod):
    """Mean of ``-log p[y]``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Return the mean cross entropy, in nats."""
        return F.cross_entropy(logits, labels)


METHODS.register(
    MethodInfo(
        name="ce",
        kind="network",
        title="cross entropy (vanilla)",
        paper="Guo et al., ICML",
        year=2017,
        url="https://arxiv.org/abs/1706.04599",
        formula=r"""
            L = \frac{1}{N} \sum_i -\log p_{i,y_i}
        """,
        bibtex=GUO,
        params=NoParams,
        implementation=CrossEntropy,
        recipe="focal",
    ),
)
