"""Cross entropy, the uncalibrated baseline ("vanilla") of every paper."""

from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, cited


class CrossEntropy(NetworkMethod):
    """Mean of ``-log p[y]``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)


METHODS.register(
    name="ce",
    title="cross entropy (vanilla)",
    **cited("Guo et al., ICML", "guo2017calibration"),
    formula=r"L = \frac{1}{N} \sum_i -\log p_{i,y_i}",
    implementation=CrossEntropy,
    recipe="focal",
)
