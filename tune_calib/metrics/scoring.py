"""Accuracy and proper scoring rules: (..., N, C) and labels (N,) int64 to (...).

Rows of probabilities must sum to 1. Invalid inputs raise ValueError.
"""

import torch
from scipy.special import bdtrc
from torch import Tensor

from tune_calib.metrics.validation import check

_CHANCE_LEVEL = 1e-3
_CHUNK = 2**21  # probabilities of one classifier processed at once


def accuracy(probs: Tensor, labels: Tensor) -> Tensor:
    """Return the share of correct predictions, in [0, 1]."""
    check(probs, labels)
    return (probs.argmax(-1) == labels).to(probs.dtype).mean(-1)


def is_at_chance(probs: Tensor, labels: Tensor) -> bool:
    """Return whether predictions (N, C) are no better than always the most frequent class.

    Under the null hypothesis of a one-sided binomial test, each prediction is correct with a
    probability equal to the share of that class.
    """
    check(probs, labels)
    right = int((probs.argmax(-1) == labels).sum())
    share = int(labels.bincount().max()) / len(labels)
    # bdtrc(k) is the probability of more than k, hence the - 1. scipy.stats offers the same under
    # a better-known name but takes half a second to import.
    return bool(bdtrc(right - 1, len(labels), share) > _CHANCE_LEVEL)


def is_by_chance(predicted: Tensor, labels: Tensor) -> bool:
    """Return whether classes (N,) agree with labels no better than if they were independent.

    It is False where fewer than a hundred samples, or a single class, cannot tell.
    """
    classes = 1 + int(torch.maximum(predicted, labels).max())
    shares = [part.bincount(minlength=classes) / len(labels) for part in (predicted, labels)]
    if len(labels) < 100 or any(bool((share == 1).any()) for share in shares):
        return False
    expected = float((shares[0] * shares[1]).sum())
    right = int((predicted == labels).sum())
    return bool(bdtrc(right - 1, len(labels), expected) > _CHANCE_LEVEL)


def nll_from_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the negative log-likelihood in nats, exact even for saturated logits.

    Unlike the other functions, it takes unnormalised logits, which must be finite.
    """
    if not bool(logits.isfinite().all()):
        raise ValueError("logits must be finite, got NaN or infinity")
    log_probs = logits.log_softmax(-1)
    targets = labels.expand(log_probs.shape[:-1]).unsqueeze(-1)
    return -log_probs.gather(-1, targets).squeeze(-1).mean(-1)


def brier(probs: Tensor, labels: Tensor) -> Tensor:
    """Return the Brier score, the mean squared distance to the one-hot label, in [0, 2]."""
    check(probs, labels)
    width, squares = max(1, _CHUNK // probs.shape[-1]), []
    for part, own in zip(probs.split(width, -2), labels.split(width), strict=True):
        # Without a one-hot label in memory.
        targets = own.expand(part.shape[:-1]).unsqueeze(-1)
        gaps = part.scatter(-1, targets, part.gather(-1, targets) - 1).square()
        squares.append(gaps.sum(-1))
    return torch.cat(squares, -1).mean(-1)
