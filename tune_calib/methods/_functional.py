"""Terms that several losses are made of; logits are (N, C), labels (N,) int64."""

import torch
from torch import Tensor
from torch.nn import functional as F


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Logarithm of the probability of the right class, (N,) <= 0."""
    return logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)


def one_minus_exp(log_probs: Tensor) -> Tensor:
    """1 - p from log p, without the cancellation near p = 1; same shape."""
    return -torch.expm1(log_probs)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """Return a power of a base >= 0; its gradient at 0 is finite also for exponents below 1."""
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** exponent


def focal_terms(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return the focal loss of each sample, (1 - p_t) ** gamma * -log p_t, (N,)."""
    log_probs = label_log_probs(logits, labels)
    return power(one_minus_exp(log_probs), gamma) * -log_probs


def margin_excess(logits: Tensor, margin: float) -> Tensor:
    """Mean over classes of relu(max_l z_l - z_k - margin), (N,); the maximum takes a gradient."""
    # The papers that use it write a sum over classes; their weights were tuned on programs that
    # take the mean.
    return F.relu(logits.max(1, keepdim=True).values - logits - margin).mean(1)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Mean KL divergence of N(mean, variance) to N(0, I) over the width Z: (..., N, Z) to (...)."""
    terms = 1 + log_variance - mean.square() - log_variance.exp()
    return -0.5 * terms.sum(-1).mean(-1) / mean.shape[-1]
