"""Correctness ranking loss (Moon et al., ICML 2020, https://arxiv.org/abs/2007.01458).

Cross entropy, and a ranking loss on neighbours in the batch: the sample that was right more often
in the training so far should have the higher confidence, by as much as the shares differ. While
all samples were right equally often the term is 0 (the authors' code divides 0 by 0), and so it is
for a batch of one (theirs raises). The negative entropy is divided by ln C (theirs: by ln 100 for
CIFAR-100 and by ln 10 otherwise, ``entropy_scale`` sets it). In the formula c_i is the share of
the epochs in which sample i was right, and i + 1 its neighbour in the batch, round the end.

Own recipe: SGD with weight decay 1e-4 on the mean loss without clipping, learning rate drops at a
half and five sixths, the last epoch.
"""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import EpochFeedback, NetworkContext, NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params


class CorrectnessRankingParams(Params):
    """Hyper-parameters."""

    weight: float = Field(1.0, ge=0)
    """Weight of the ranking loss."""
    target: Literal["softmax", "entropy", "margin"] = "softmax"
    """What is ranked.

    - `softmax`: the largest probability, the default of the authors' code.
    - `entropy`: the negative entropy over `entropy_scale`.
    - `margin`: the difference of the two largest probabilities.
    """
    entropy_scale: float | None = Field(None, gt=0)
    """What the negative entropy is divided by; ln C if absent. Read with `entropy` only."""


class CorrectnessRanking(NetworkMethod):
    """Cross entropy plus ``weight`` times the ranking loss.

    Attributes:
        n_correct: (samples,) int64, how often each sample was right in training.
        max_correct: () int64, how often it may have been; 1 in the first two epochs.
    """

    params: CorrectnessRankingParams
    n_correct: Tensor
    max_correct: Tensor

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        self.register_buffer("n_correct", torch.zeros(context.samples, dtype=torch.int64))
        self.register_buffer("max_correct", torch.ones((), dtype=torch.int64))

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Mean cross entropy, in nats, plus the weighted ranking loss."""
        confidence = self.confidence(logits)
        share = self.shares(indices).to(confidence.dtype)
        # The partner is the next sample of the batch, that of the last one the first.
        distance = share - share.roll(-1)
        gap = distance.sign() * (confidence - confidence.roll(-1))
        ranking = torch.where(distance == 0, 0, F.relu(distance.abs() - gap)).mean()
        return F.cross_entropy(logits, labels) + self.params.weight * ranking

    def confidence(self, logits: Tensor) -> Tensor:
        """Return the confidences that are ranked: (N, C) to (N,)."""
        if self.params.target == "entropy":
            log_probs = logits.log_softmax(1)
            scale = self.params.entropy_scale or math.log(logits.shape[1])
            return (log_probs.exp() * log_probs).sum(1) / scale
        probs = logits.softmax(1)
        if self.params.target == "margin":
            largest = probs.topk(2, 1).values
            return largest[:, 0] - largest[:, 1]
        return probs.max(1).values

    def shares(self, indices: Tensor) -> Tensor:
        """Share of the epochs in which samples were right, (N,) float64; 0 if all agree."""
        # Of the whole training split, not of the batch.
        lowest = self.n_correct.min()
        span = self.max_correct - lowest
        excess = (self.n_correct[indices] - lowest).double()
        # The branch that is not taken is computed too, and must not divide by 0.
        return torch.where(span == 0, 0, excess / torch.where(span == 0, 1, span))

    def after_step(self, logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        """Count who was right."""
        # By the logits of the step itself, in training mode and of augmented images: no pass more.
        self.n_correct.index_add_(0, indices, (logits.argmax(1) == labels).long())

    def end_epoch(self, epoch: int, feedback: EpochFeedback | None) -> dict[str, float]:
        """Count correct predictions; from the second epoch on, a sample may have one more."""
        if epoch >= 1:
            self.max_correct += 1
        return {}


MOON = """
@inproceedings{moon2020confidence,
  author = {Moon, Jooyoung and Kim, Jihyo and Shin, Younghak and Hwang, Sangheum},
  title = {Confidence-Aware Learning for Deep Neural Networks},
  booktitle = {Proceedings of the 37th International Conference on Machine Learning},
  pages = {7034--7044},
  year = {2020},
  url = {https://arxiv.org/abs/2007.01458},
}
"""

METHODS.register(
    MethodInfo(
        name="crl",
        kind="network",
        title="correctness ranking loss",
        paper="Moon et al., ICML",
        year=2020,
        url="https://arxiv.org/abs/2007.01458",
        formula=r"""
            L = \frac{1}{N} \sum_i \Big[ -\log p_{i,y_i} + w \, r_i \Big],
            \quad r_i = \big[ |c_i - c_{i+1}| - \operatorname{sign}(c_i - c_{i+1})
                (\kappa_i - \kappa_{i+1}) \big]_+ \text{ where } c_i \ne c_{i+1}, \text{ else } 0
        """,
        bibtex=MOON,
        params=CorrectnessRankingParams,
        implementation=CorrectnessRanking,
        pairs_by_order=True,
        recipe="crl",
    ),
)
