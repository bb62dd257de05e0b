"""Reliability bins of top-label confidence, batched over leading axes.

Functions map probabilities (..., N, C), whose rows sum to 1, and labels (N,) int64 to a table.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# The spacing is about the smallest bandwidth of the smooth ECE, so splitting a sample between its
# two nearest grid points hardly widens the kernel.
GRID = 1024


@dataclass(frozen=True)
class BinTable:
    """A reliability diagram."""

    count: Tensor  # samples in each bin, (..., B)
    confidence: Tensor  # mean confidence, (..., B); 0 in an empty bin
    accuracy: Tensor  # share of correct samples, (..., B); 0 in an empty bin
    lower: Tensor  # lower edge of each bin, (..., B) or (B,)
    upper: Tensor  # upper edge of each bin, (..., B) or (B,)

    @property
    def gap(self) -> Tensor:
        """Return confidence minus accuracy, (..., B), positive where over-confident."""
        return self.confidence - self.accuracy

    def expected_gap(self, samples: int) -> Tensor:
        """Return the sum over bins of n_b/N |gap_b|, (...), for N samples."""
        return (self.count / samples * self.gap.abs()).sum(-1)


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence (..., N) and the correctness (..., N) in {0, 1} of the predictions."""
    confidence, predicted = probs.max(-1)
    return confidence, (predicted == labels).to(probs.dtype)


def at_labels(values: Tensor, labels: Tensor) -> Tensor:
    """Return the value of the true class of each sample: (..., N, C), (N,) to (..., N)."""
    return values.gather(-1, labels.expand(values.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def bin_table(probs: Tensor, labels: Tensor, bins: int = 15) -> BinTable:
    """Sort samples into equal-width bins (lo, hi] of confidence, as in the papers."""
    return confidence_table(*top_label(probs, labels), bins=bins)


def confidence_table(confidence: Tensor, correct: Tensor, bins: int = 15) -> BinTable:
    """Sort samples into equal-width bins by confidence and correctness, each (..., N)."""
    # Edges have the type of the probabilities, so that a confidence at an edge equals it and falls
    # into the bin below.
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype, device=confidence.device)
    index = torch.bucketize(confidence.contiguous(), edges) - 1
    return tabulate(confidence, correct, index, edges)


def tabulate(confidence: Tensor, correct: Tensor, index: Tensor, edges: Tensor) -> BinTable:
    """Build the table from samples (..., N) in bins ``index``, -1 for none; edges (..., B + 1)."""
    bins = edges.shape[-1] - 1
    place = index.clamp(max=bins - 1) + 1
    count = summed(place, (index >= 0).to(confidence.dtype), bins)
    divisor = count.clamp(min=1)
    mean_confidence = summed(place, confidence, bins) / divisor
    mean_correct = summed(place, correct, bins) / divisor
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
    largest, correct = top_label(probs, labels)
    confidence = largest if confidence is None else confidence
    ordered = confidence.sort(-1).values
    edges = adaptive_edges(
        lambda ranks: ordered[..., ranks], confidence.shape[-1], bins, device=probs.device
    )
    index = torch.searchsorted(edges.contiguous(), confidence.double().contiguous()) - 1
    index = torch.where(index >= bins, -1, index)
    return tabulate(confidence, correct, index, edges)


def adaptive_edges(
    confidence_at: Callable[[Tensor], Tensor], samples: int, bins: int, device: torch.device
) -> Tensor:
    """Return the edges (..., B + 1) of adaptive bins from the confidences at ranks (B + 1,)."""
    # In float64 as in numpy: an edge rounded differently from the confidence it stands for would
    # move that sample to the next bin.
    # This is numpy.interp at j N/B over positions 0..N-1; the last edge is clamped to the largest.
    position = torch.linspace(0, samples, bins + 1, dtype=torch.float64, device=device)
    below = position.floor().long().clamp(max=samples - 1)
    above = (below + 1).clamp(max=samples - 1)
    low, high = confidence_at(below).double(), confidence_at(above).double()
    return low + (high - low) * (position - below).clamp(0, 1)


def on_grid(places: Tensor, values: Tensor) -> Tensor:
    """Sum values (..., N) at places in [0, 1] onto the grid, (..., GRID + 1)."""
    below, share = neighbours(places)
    sums = values.new_zeros(*values.shape[:-1], GRID + 1)
    return sums.scatter_add(-1, below, (1 - share) * values).scatter_add(
        -1, below + 1, share * values
    )


def neighbours(places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the grid point below each place, and the linear weight of the point above it."""
    scaled = places.clamp(max=1) * GRID
    below = scaled.long().clamp(max=GRID - 1)
    return below, scaled - below
