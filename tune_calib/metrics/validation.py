"""Validation of the inputs of metrics and methods."""

import torch
from torch import Tensor

# Rows of float32 softmax over a thousand classes sum to 1 within this, and so do rows in which
# ``ties.settled`` moved probabilities to the edges of bins.
_TOLERANCE = 1e-4

UNEVEN = 4e-3
"""Largest deviation of a sample's probabilities from a sum of one; bfloat16 rounds each by up to a
relative 2e-3."""

ROUNDED = 0.05
"""The same deviation for probabilities that are rounded to two digits."""

PROBABILITIES = (
    "logits look like probabilities: none is negative and the rows sum to 1; pass their "
    "logarithms, e.g. np.log(np.clip(probabilities, 1e-12, None))"
)
"""Error message for logits that are probabilities."""

_MANY = 10  # rows from which on the share of those that sum to 1 decides


class Appearance:
    """What rows (N, C) look like, judged by all of them, which may come in parts.

    Logits sum to 1 by chance only in a few rows. Log-probabilities are negative, and a single class
    has no probabilities.
    """

    def __init__(self, *parts: Tensor) -> None:
        self.rows = self._even = self._rounded = self._bounded = 0
        self._largest = 0.0
        for part in parts:
            self.add(part)

    def add(self, rows: Tensor) -> None:
        """Take further rows into account."""
        if rows.shape[1] < 2 or not len(rows):
            return
        is_bounded = (rows.amin(1) >= -UNEVEN) & (rows.amax(1) <= 1 + UNEVEN)
        deviations = (rows.double().sum(1) - 1).abs()
        self.rows += len(rows)
        self._bounded += int(is_bounded.sum())
        self._even += int((is_bounded & (deviations <= UNEVEN)).sum())
        self._rounded += int((is_bounded & (deviations <= ROUNDED)).sum())
        self._largest = max(self._largest, float(rows.max()))

    @property
    def are_probabilities(self) -> bool:
        """Return whether the rows sum to 1: most of many rows, or all of a few."""
        if self.rows < _MANY:
            return 0 < self.rows == self._even
        return 2 * self._rounded >= self.rows

    @property
    def may_be_probabilities(self) -> bool:
        """Return whether nearly all rows lie in [0, 1], such as sigmoids or rows of zeros."""
        return self._bounded >= 0.99 * self.rows > 0 and self._largest > 0.5


def check(probs: Tensor, labels: Tensor) -> None:
    """Raise ValueError unless metrics are defined on probabilities and labels.

    Rows of ``probs`` (..., N, C), float32 or float64, must sum to 1, and ``labels`` (N,), int64,
    be in [0, C). The message names the argument, the rule and the value.
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


def whole_numbers(weights: Tensor, name: str) -> Tensor:
    """Return weights (N,) as integers, by which rows are repeated; ``name`` counts samples."""
    if not torch.equal(weights, weights.round()):
        raise ValueError(
            f"{name} counts samples, so sample_weight must be whole numbers, by which rows are "
            "repeated"
        )
    return weights.long()
