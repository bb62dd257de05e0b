"""Correctness ranking loss (Moon et al., ICML 2020, https://arxiv.org/abs/2007.01458).

Cross entropy plus a ranking loss on neighbours in the batch: the sample that was classified
correctly more often in the training so far should have the higher confidence, by as much as the
shares differ. While all samples have been correct equally often, the term is 0 (the authors' code
divides 0 by 0). It is also 0 for a batch of one sample (their code raises). The negative entropy is
divided by ln C (their code uses ln 100 for CIFAR-100 and ln 10 otherwise; ``entropy_scale`` sets
the divisor). In the formula, c_i is the share of epochs in which sample i was correct, and i + 1 is
the next sample of the batch; the first sample follows the last.
"""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import EpochFeedback, NetworkContext, NetworkMethod
from tune_calib.spec.methods import METHODS, Params, cited


class CorrectnessRankingParams(Params):
    weight: float = Field(1.0, ge=0)
    """Weight of the ranking loss."""
    target: Literal["softmax", "entropy", "margin"] = "softmax"
    """Confidence that is ranked.

    - `softmax`: the largest probability, the default of the authors' code.
    - `entropy`: the negative entropy divided by `entropy_scale`.
    - `margin`: the difference between the two largest probabilities.
    """
    entropy_scale: float | None = Field(None, gt=0)
    """Divisor of the negative entropy; ln C by default. Used with `entropy` only."""


class CorrectnessRanking(NetworkMethod):
    """Cross entropy plus ``weight`` times the ranking loss."""

    params: CorrectnessRankingParams
    n_correct: Tensor  # (samples,) int64, correct predictions of each sample in training
    max_correct: Tensor  # () int64, largest possible number; 1 in the first two epochs

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        self.register_buffer("n_correct", torch.zeros(context.samples, dtype=torch.int64))
        self.register_buffer("max_correct", torch.ones((), dtype=torch.int64))

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        if self.params.target == "entropy":
            log_probs = logits.log_softmax(1)
            scale = self.params.entropy_scale or math.log(logits.shape[1])
            confidence = (log_probs.exp() * log_probs).sum(1) / scale
        elif self.params.target == "margin":
            largest = logits.softmax(1).topk(2, 1).values
            confidence = largest[:, 0] - largest[:, 1]
        else:
            confidence = logits.softmax(1).max(1).values
        share = self.shares(indices).to(confidence.dtype)
        # The partner is the next sample of the batch; the last sample's partner is the first.
        distance = share - share.roll(-1)
        gap = distance.sign() * (confidence - confidence.roll(-1))
        ranking = torch.where(distance == 0, 0, F.relu(distance.abs() - gap)).mean()
        return F.cross_entropy(logits, labels) + self.params.weight * ranking

    def shares(self, indices: Tensor) -> Tensor:
        """Return the normalised share of epochs in which samples were correct, (N,) float64."""
        # The minimum over the whole training split, not over the batch.
        lowest = self.n_correct.min()
        span = self.max_correct - lowest
        excess = (self.n_correct[indices] - lowest).double()
        # The branch that is not taken is computed too, and must not divide by 0.
        return torch.where(span == 0, 0, excess / torch.where(span == 0, 1, span))

    def after_step(self, logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        # From the training logits of the step, on augmented images, without another pass.
        self.n_correct.index_add_(0, indices, (logits.argmax(1) == labels).long())

    def end_epoch(self, epoch: int, feedback: EpochFeedback | None) -> dict[str, float]:
        if epoch >= 1:
            self.max_correct += 1
        return {}


METHODS.register(
    name="crl",
    title="correctness ranking loss",
    **cited("Moon et al., ICML", "moon2020confidence"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i} + w \, r_i \Big],
        \quad r_i = \big[ |c_i - c_{i+1}| - \operatorname{sign}(c_i - c_{i+1})
            (\kappa_i - \kappa_{i+1}) \big]_+ \text{ where } c_i \ne c_{i+1}, \text{ else } 0
    """,
    params=CorrectnessRankingParams,
    implementation=CorrectnessRanking,
    pairs_by_order=True,
    recipe="crl",
)
