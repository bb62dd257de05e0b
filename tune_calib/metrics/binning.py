"""Reliability bins of top-label confidence, batched over leading axes.

Functions map probabilities (..., N, C), whose rows sum to 1, and labels (N,) int64 to a table. They
raise ValueError if an input is out of range, not finite or of the wrong shape.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.metrics.validation import check


@dataclass(frozen=True)
class BinTable:
    """A reliability diagram."""

    count: Tensor
    """Samples in each bin, (..., B)."""
    confidence: Tensor
    """Mean confidence, (..., B); 0 in an empty bin."""
    accuracy: Tensor
    """Share of correct samples, (..., B); 0 in an empty bin."""
    lower: Tensor
    """Lower edge of each bin, (..., B) or (B,)."""
    upper: Tensor
    """Upper edge of each bin, (..., B) or (B,)."""

    @property
    def gap(self) -> Tensor:
        """Return confidence minus accuracy, (..., B), positive where over-confident."""
        return self.confidence - self.accuracy


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence (..., N) and the correctness (..., N) in {0, 1} of the predictions."""
    confidence, predicted = probs.max(-1)
    return confidence, (predicted == labels).to(probs.dtype)


def bin_table(probs: Tensor, labels: Tensor, bins: int = 15) -> BinTable:
    """Sort samples into equal-width bins (lo, hi] of confidence, as in the papers."""
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    # Edges have the type of the probabilities, so that a confidence at an edge equals it and falls
    # into the bin below.
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    index = torch.bucketize(confidence.contiguous(), edges) - 1
    return tabulate(confidence, correct, index, edges)


def tabulate(confidence: Tensor, correct: Tensor, index: Tensor, edges: Tensor) -> BinTable:
    """Build the table from samples (..., N) in bins ``index``, -1 for no bin, and edges (B + 1,).

    The edges may also differ between leading axes, (..., B + 1).
    """
    bins = edges.shape[-1] - 1
    place = index.clamp(max=bins - 1) + 1
    count = summed(place, (index >= 0).to(confidence.dtype), bins)
    mean_confidence, mean_correct = (
        summed(place, values, bins) / count.clamp(min=1) for values in (confidence, correct)
    )
    return BinTable(count, mean_confidence, mean_correct, edges[..., :-1], edges[..., 1:])


def summed(place: Tensor, values: Tensor, bins: int) -> Tensor:
    """Return the sum of the values in each bin, numbered from 1: (..., N) to (..., B)."""
    # Places 0 and B + 1 collect the samples in no bin.
    zeros = torch.zeros(*values.shape[:-1], bins + 2, dtype=values.dtype, device=values.device)
    return zeros.scatter_add(-1, place, values)[..., 1 : bins + 1]


def adaptive_table(
    probs: Tensor, labels: Tensor, bins: int = 15, confidence: Tensor | None = None
) -> BinTable:
    """Sort samples into the adaptive bins of Mukhoti et al. (NeurIPS 2020).

    The edges interpolate the sorted confidences. The quirks of their code are reproduced, since all
    published tables use it: bins are (lo, hi], so that the smallest confidence is in no bin, and
    equal confidences share a bin or are in none. ``confidence`` (..., N) replaces the largest
    probabilities (``ties.settled``).
    """
    check(probs, labels)
    largest, correct = top_label(probs, labels)
    confidence = largest if confidence is None else confidence
    samples = confidence.shape[-1]
    ordered = confidence.sort(-1).values
    # In float64 as in numpy: an edge rounded differently from the confidence it stands for would
    # move that sample to the next bin.
    # This is numpy.interp at j N/B over positions 0..N-1; the last edge is clamped to the largest.
    position = torch.linspace(0, samples, bins + 1, dtype=torch.float64, device=probs.device)
    below = position.floor().long().clamp(max=samples - 1)
    above = (below + 1).clamp(max=samples - 1)
    share = (position - below).clamp(0, 1)
    low, high = ordered[..., below].double(), ordered[..., above].double()
    edges = low + (high - low) * share
    index = torch.searchsorted(edges.contiguous(), confidence.double().contiguous()) - 1
    index = torch.where(index >= bins, -1, index)
    return tabulate(confidence, correct, index, edges)
