"""Calibration by pairwise constraints (Cheng and Vasconcelos, CVPR 2022).

Cross entropy, binary discrimination of the right class against each other class, and binary
exclusion: between two wrong classes neither should win. As in the code (by-liu/CALS) the second
constraint runs over ordered pairs, each with itself too. With two classes there is no pair of
wrong classes: the term is 0 where the code divides by 0. Beyond ``LARGEST`` pairs the samples are
taken in chunks whose pairs are computed again in the backward pass, so that memory is bounded.

Own recipe: that of the code, which is MbLS's: SGD on the mean loss, clipped at 2, the epoch of
best validation accuracy, and on CIFAR-10 without the incomplete last batch.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params

LARGEST = 2**24
"""Pairs (samples x classes^2) that are held at a time."""

# In the authors' code, and here so that the terms equal theirs.
SHIFT = 1e-10


class PairwiseConstraintsParams(Params):
    """Hyper-parameters."""

    lambda_bdc: float = Field(0.1, ge=0)
    """Weight of the binary discrimination constraints."""
    lambda_bec: float = Field(1.0, ge=0)
    """Weight of the binary exclusion constraints."""


def wrong_pairs(wrong: Tensor) -> Tensor:
    """Sum ``-0.5 log sigmoid(z_j - z_k)`` over all pairs of wrong classes: (N, C - 1) to ()."""
    return -0.5 * F.logsigmoid(wrong[:, :, None] - wrong[:, None, :] + SHIFT).sum()


def exclusion(wrong: Tensor, largest: int = LARGEST) -> Tensor:
    """Return the mean binary exclusion term.

    Args:
        wrong: (N, C - 1), logits of the wrong classes.
        largest: number of pairs in memory at once.

    Returns:
        A scalar; 0 for C = 2.
    """
    samples, classes = wrong.shape
    if classes < 2:
        return wrong.new_zeros(())
    size = max(1, largest // classes**2)
    if size >= samples:
        # A class with itself adds 0.5 log 2 / (C - 2), a constant that the code has as well: losses
        # can be compared with its own.
        total = wrong_pairs(wrong)
    else:
        parts = [
            checkpoint(wrong_pairs, chunk, use_reentrant=False, preserve_rng_state=False)
            for chunk in wrong.split(size)
        ]
        total = torch.stack(parts).sum()
    # Divided by the number of pairs of different classes, though each class is paired with itself
    # too: so in the code.
    return total / (samples * classes * (classes - 1))


class PairwiseConstraints(NetworkMethod):
    """Cross entropy plus the weighted means of both constraints."""

    params: PairwiseConstraintsParams

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Return the mean cross entropy, in nats, plus the weighted constraints."""
        others = F.one_hot(labels, logits.shape[1]) == 0
        wrong = logits[others].view(len(logits), -1)
        discrimination = -F.logsigmoid(logits.gather(1, labels[:, None]) - wrong).mean()
        return (
            F.cross_entropy(logits, labels)
            + self.params.lambda_bdc * discrimination
            + self.params.lambda_bec * exclusion(wrong)
        )


CHENG = """
@inproceedings{cheng2022pairwise,
  author = {Cheng, Jiacheng and Vasconcelos, Nuno},
  title = {Calibrating Deep Neural Networks by Pairwise Constraints},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  pages = {13709--13718},
  year = {2022},
  url = {https://openaccess.thecvf.com/CVPR2022},
}
"""

METHODS.register(
    MethodInfo(
        name="cpc",
        kind="network",
        title="calibration by pairwise constraints",
        paper="Cheng and Vasconcelos, CVPR",
        year=2022,
        url=(
            "https://openaccess.thecvf.com/content/CVPR2022/html/Cheng_Calibrating_Deep_"
            "Neural_Networks_by_Pairwise_Constraints_CVPR_2022_paper.html"
        ),
        formula=r"""
            L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i} + \lambda_{\mathrm{bdc}} D_i
                + \lambda_{\mathrm{bec}} E_i \Big],
            \quad D_i = \frac{1}{C - 1} \sum_{k \ne y_i} -\log \sigma(z_{i,y_i} - z_{i,k}),
            \quad E_i = \frac{1}{(C - 1)(C - 2)} \sum_{j, k \ne y_i}
                -\tfrac{1}{2} \log \sigma(z_{i,j} - z_{i,k})
        """,
        bibtex=CHENG,
        params=PairwiseConstraintsParams,
        implementation=PairwiseConstraints,
        recipe="acls",
    ),
)
