"""Terms shared by several losses. Logits are (N, C), and labels are (N,) int64."""

import torch
from torch import Tensor
from torch.nn import functional as F


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability of the true class, (N,) <= 0."""
    return logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of values (N,), weighted if there are weights (N,)."""
    return values.mean() if weights is None else (values * weights).sum() / weights.sum()


def one_minus_exp(log_probs: Tensor) -> Tensor:
    """Return 1 - p from log p, without cancellation near p = 1; same shape."""
    return -torch.expm1(log_probs)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """Return a power of a base >= 0, with a finite gradient at 0 even for exponents below 1."""
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** exponent


def focal_terms(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return the focal loss of each sample, (1 - p_t) ** gamma * -log p_t, (N,)."""
    log_probs = label_log_probs(logits, labels)
    return power(one_minus_exp(log_probs), gamma) * -log_probs


def margin_excess(logits: Tensor, margin: float) -> Tensor:
    """Return the mean over classes of relu(max_l z_l - z_k - margin), (N,).

    The gradient also flows through the maximum.
    """
    # The papers that use it write a sum over classes, but their weights were tuned with programs
    # that take the mean.
    return F.relu(logits.max(1, keepdim=True).values - logits - margin).mean(1)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the mean KL divergence (...) of N(mean, variance) from N(0, I), divided by Z."""
    terms = 1 + log_variance - mean.square() - log_variance.exp()
    return -0.5 * terms.sum(-1).mean(-1) / mean.shape[-1]
