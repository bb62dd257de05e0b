"""Validation of the inputs of metrics and methods."""

import torch
from torch import Tensor

# Rows of float32 softmax over a thousand classes sum to 1 within a tenth of this, and so do rows in
# which ``ties.settled`` moved probabilities.
_TOLERANCE = 1e-3

UNEVEN = 4e-3
"""Largest deviation of a sample's probabilities from a sum of one; bfloat16 rounds each by up to a
relative 2e-3."""

PROBABILITIES = (
    "logits look like probabilities: none is negative and every row sums to 1; pass their "
    "logarithms, e.g. np.log(np.clip(probabilities, 1e-12, None))"
)
"""Error message for logits that are probabilities."""


def are_probabilities(rows: Tensor) -> bool:
    """Return whether rows (N, C) must be probabilities: none is negative and all sum to one.

    Logits meet both conditions by chance only in a few rows. Log-probabilities are negative, and a
    single class has no probabilities.
    """
    sums = rows.double().sum(1)
    is_even = (sums - 1).abs() <= UNEVEN
    return rows.shape[1] > 1 and bool((rows >= 0).all()) and bool(is_even.all())


def check(probs: Tensor, labels: Tensor) -> None:
    """Raise for probabilities and labels on which no metric is defined.

    Args:
        probs: (..., N, C), float32 or float64, rows sum to 1.
        labels: (N,), int64, in [0, C).

    Raises:
        ValueError: an input is invalid. The message names the argument, the rule and the value.
    """
    if probs.ndim < 2 or labels.ndim != 1 or probs.shape[-2] != len(labels):
        shapes = f"{tuple(probs.shape)} and {tuple(labels.shape)}"
        raise ValueError(f"probs must be (..., N, C) and labels (N,), got {shapes}")
    if len(labels) == 0:
        raise ValueError("labels must hold at least one sample, got none")
    if probs.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"probs must be float32 or float64, got {probs.dtype}; convert them")
    low, high = float(probs.min()), float(probs.max())
    # The conditions are stated positively and negated: every comparison with NaN is false, so NaN
    # fails here and below.
    if not (low >= 0 and high <= 1 + _TOLERANCE):
        raise ValueError(f"probs must be in [0, 1], got [{low}, {high}]; apply softmax to logits")
    error = float((probs.sum(-1) - 1).abs().max())
    if not error <= _TOLERANCE:
        raise ValueError(f"rows of probs must sum to 1, got a row off by {error}")
    first, last = int(labels.min()), int(labels.max())
    if not (first >= 0 and last < probs.shape[-1]):
        raise ValueError(f"labels must be in [0, {probs.shape[-1]}), got [{first}, {last}]")
