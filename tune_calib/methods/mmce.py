"""Maximum mean calibration error (Kumar et al., ICML 2018).

https://proceedings.mlr.press/v80/kumar18a.html. Cross entropy plus a kernel distance between
confidence and correctness on the batch. ``mmce`` is the plain form without the paper's square root.
``mmce_weighted`` treats correct and wrong samples separately. Both follow torrvision/
focal_calibration. The weighted term of a batch without correct or without wrong samples is 0
(the code raises for one sample and gives NaN for two of a kind).
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, Params, cited

WIDTH = 0.4
ROOT_SHIFT = 1e-10


class MmceParams(Params):
    lam: float = Field(1.0, ge=0)
    """Weight of the calibration term."""


class WeightedMmceParams(Params):
    lam: float = Field(2.0, ge=0)
    """Weight of the calibration term; 2 in every script of Mukhoti et al."""
    normalisation: Literal["code", "paper"] = "code"
    """How the sums over pairs are normalised.

    - `code`: each mean is divided by its number of pairs once more, as in the authors' programs;
      `lam` was tuned for that.
    - `paper`: plain means.
    """


def judged(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return confidence (N,), correctness (N,) bool, and kernel (N, N) of the confidences."""
    confidence, predicted = logits.softmax(1).max(1)
    kernel = (-(confidence[:, None] - confidence[None, :]).abs() / WIDTH).exp()
    return confidence, predicted == labels, kernel


class Mmce(NetworkMethod):
    """Cross entropy plus ``lam`` times the squared MMCE, without a gradient through correctness."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        lam: float = self.params.lam
        return F.cross_entropy(logits, labels) + lam * self.term(logits, labels)

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of e_i e_j K_ij over all pairs, where e = correctness - confidence."""
        confidence, correct, kernel = judged(logits, labels)
        error = correct.to(confidence.dtype) - confidence
        # Without the root of the paper's objective: the published weights were tuned without it.
        return (error[:, None] * error[None, :] * kernel).mean()


class WeightedMmce(Mmce):
    """Cross entropy plus ``lam`` times the weighted MMCE of correct and wrong samples."""

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the root of the weighted squared MMCE; 0 if all samples are correct or wrong."""
        confidence, correct, kernel = judged(logits, labels)
        right = correct.to(confidence.dtype)
        wrong = 1 - right
        doubt, trust = right * (1 - confidence), wrong * confidence
        squared_mmce = self.mean(doubt, doubt, kernel, right.sum() * right.sum())
        squared_mmce = squared_mmce + self.mean(trust, trust, kernel, wrong.sum() * wrong.sum())
        squared_mmce = squared_mmce - 2 * self.mean(doubt, trust, kernel, right.sum() * wrong.sum())
        # Non-negative except for rounding errors, which may exceed the shift in float32.
        root = (squared_mmce + ROOT_SHIFT).clamp(min=ROOT_SHIFT / 2).sqrt()
        # The root is clamped above 0, so that the branch not taken has a finite gradient: otherwise
        # where() would turn it into NaN.
        return torch.where(correct.any() & ~correct.all(), root, 0)

    def mean(self, left: Tensor, right: Tensor, kernel: Tensor, pairs: Tensor) -> Tensor:
        """Return the mean of left_i right_j K_ij over the pairs of two groups, normalised."""
        mean = left @ kernel @ right / pairs.clamp(min=1)
        return mean / (pairs + 1e-5) if self.params.normalisation == "code" else mean


_register = partial(METHODS.register, **cited("Kumar et al., ICML", "kumar2018trainable"))
_register(
    name="mmce",
    title="maximum mean calibration error",
    formula=r"""
        L = \frac{1}{N} \sum_i -\log p_{i,y_i} + \lambda \frac{1}{N^2} \sum_{i,j}
            e_i e_j \, e^{-|\kappa_i - \kappa_j| / 0.4},
        \quad e_i = 1[\hat y_i = y_i] - \kappa_i
    """,
    params=MmceParams,
    implementation=Mmce,
    recipe="acls",
)
_register(
    name="mmce_weighted",
    title="maximum mean calibration error, weighted for correct and wrong samples",
    formula=r"""
        L = \frac{1}{N} \sum_i -\log p_{i,y_i} + \lambda \sqrt{
            \frac{S_{AA}}{m^2 + 10^{-5}} + \frac{S_{BB}}{n^2 + 10^{-5}}
            - 2 \frac{S_{AB}}{m n + 10^{-5}} + 10^{-10}},
        \quad S_{XY} = \frac{1}{|X| |Y|} \sum_{i \in X, j \in Y} d_i d_j
            \, e^{-|\kappa_i - \kappa_j| / 0.4},
        \quad d_i = |1[\hat y_i = y_i] - \kappa_i|,
        \quad A: m \text{ right}, \; B: n \text{ wrong samples}
    """,
    params=WeightedMmceParams,
    implementation=WeightedMmce,
    recipe="focal",
)
