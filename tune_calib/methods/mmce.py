"""Maximum mean calibration error (Kumar et al., ICML 2018).

https://proceedings.mlr.press/v80/kumar18a.html. Cross entropy, and a kernel distance between
confidence and correctness on the batch. ``mmce`` is the plain form without the paper's square
root, ``mmce_weighted`` the form with right and wrong samples apart, both as in torrvision/
focal_calibration. The weighted code divides by the group sizes twice; ``lam`` was tuned on that, so
it is the default. A batch with no right or no wrong sample has a weighted term of 0 (the code
raises for one sample and gives NaN for two of a kind).

Own recipes: ``mmce`` that of MbLS's code, which compares with it (mean loss, clipped at 2, the
epoch of best validation accuracy, on CIFAR-10 without the incomplete last batch);
``mmce_weighted`` that of Mukhoti's (the loss summed over the batch, clipped at 2, the last epoch).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params

WIDTH = 0.4

ROOT_SHIFT = 1e-10


class MmceParams(Params):
    """Hyper-parameters."""

    lam: float = Field(1.0, ge=0)
    """Weight of the term."""


class WeightedMmceParams(Params):
    """Hyper-parameters."""

    lam: float = Field(2.0, ge=0)
    """Weight of the term; 2 in every script of Mukhoti et al."""
    normalisation: Literal["code", "paper"] = "code"
    """How the sums over pairs are normalised.

    - `code`: each mean is divided by its number of pairs once more, as in the authors' programs;
      `lam` was tuned on that.
    - `paper`: the means as they are.
    """


def judged(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence (N,), correctness (N,) bool, and kernel (N, N) of the confidences."""
    confidence, predicted = logits.softmax(1).max(1)
    kernel = (-(confidence[:, None] - confidence[None, :]).abs() / WIDTH).exp()
    return confidence, predicted == labels, kernel


class Mmce(NetworkMethod):
    """Cross entropy plus ``lam`` times the squared MMCE; no gradient through correctness."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Mean cross entropy, in nats, plus the weighted term."""
        lam: float = self.params.lam
        return F.cross_entropy(logits, labels) + lam * self.term(logits, labels)

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean of e_i e_j K_ij over all pairs, with e = correctness - confidence; a scalar."""
        confidence, correct, kernel = judged(logits, labels)
        error = correct.to(confidence.dtype) - confidence
        # No root, which the paper's objective has: the published weights were tuned without.
        return (error[:, None] * error[None, :] * kernel).mean()


class WeightedMmce(Mmce):
    """Cross entropy plus ``lam`` times the MMCE between right and wrong samples."""

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Root of the weighted squared MMCE; 0 if all samples are right, or all wrong."""
        confidence, correct, kernel = judged(logits, labels)
        right = correct.to(confidence.dtype)
        wrong = 1 - right
        doubt, trust = right * (1 - confidence), wrong * confidence
        both = self.mean(doubt, doubt, kernel, right.sum() * right.sum())
        both = both + self.mean(trust, trust, kernel, wrong.sum() * wrong.sum())
        both = both - 2 * self.mean(doubt, trust, kernel, right.sum() * wrong.sum())
        # Not negative but for rounding, which in float32 may exceed the shift.
        root = (both + ROOT_SHIFT).clamp(min=ROOT_SHIFT / 2).sqrt()
        # The root is clamped above 0, so that the branch not taken has a finite gradient: one that
        # is not finite would come through where() as NaN.
        return torch.where(correct.any() & ~correct.all(), root, 0)

    def mean(self, left: Tensor, right: Tensor, kernel: Tensor, pairs: Tensor) -> Tensor:
        """Mean of left_i right_j K_ij over the pairs of two groups, normalised as asked."""
        mean = left @ kernel @ right / pairs.clamp(min=1)
        return mean / (pairs + 1e-5) if self.params.normalisation == "code" else mean


KUMAR = """
@inproceedings{kumar2018trainable,
  author = {Kumar, Aviral and Sarawagi, Sunita and Jain, Ujjwal},
  title = {Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings},
  booktitle = {Proceedings of the 35th International Conference on Machine Learning},
  pages = {2805--2814},
  year = {2018},
  url = {https://proceedings.mlr.press/v80/kumar18a.html},
}
"""

METHODS.register(
    MethodInfo(
        name="mmce",
        kind="network",
        title="maximum mean calibration error",
        paper="Kumar et al., ICML",
        year=2018,
        url="https://proceedings.mlr.press/v80/kumar18a.html",
        formula=r"""
            L = \frac{1}{N} \sum_i -\log p_{i,y_i} + \lambda \frac{1}{N^2} \sum_{i,j}
                e_i e_j \, e^{-|\kappa_i - \kappa_j| / 0.4},
            \quad e_i = 1[\hat y_i = y_i] - \kappa_i
        """,
        bibtex=KUMAR,
        params=MmceParams,
        implementation=Mmce,
        recipe="acls",
    ),
)

METHODS.register(
    MethodInfo(
        name="mmce_weighted",
        kind="network",
        title="maximum mean calibration error, right and wrong samples weighted",
        paper="Kumar et al., ICML",
        year=2018,
        url="https://proceedings.mlr.press/v80/kumar18a.html",
        formula=r"""
            L = \frac{1}{N} \sum_i -\log p_{i,y_i} + \lambda \sqrt{
                \frac{S_{AA}}{m^2 + 10^{-5}} + \frac{S_{BB}}{n^2 + 10^{-5}}
                - 2 \frac{S_{AB}}{m n + 10^{-5}} + 10^{-10}},
            \quad S_{XY} = \frac{1}{|X| |Y|} \sum_{i \in X, j \in Y} d_i d_j
                \, e^{-|\kappa_i - \kappa_j| / 0.4},
            \quad d_i = |1[\hat y_i = y_i] - \kappa_i|,
            \quad A: m \text{ right}, \; B: n \text{ wrong samples}
        """,
        bibtex=KUMAR,
        params=WeightedMmceParams,
        implementation=WeightedMmce,
        recipe="focal",
    ),
)
