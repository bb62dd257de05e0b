"""Reliability bins of top-label confidence, batched over leading axes.

Functions map probabilities (..., N, C), whose rows sum to 1, and labels (N,) int64 to a table. They
raise ValueError if an input is out of range, not finite or of the wrong shape.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tune_calib.metrics.validation import check

Convention = Literal["right", "left", "ceil"]


@dataclass(frozen=True)
class BinTable:
    """A reliability diagram.

    Attributes:
        count: (..., B), samples in each bin.
        confidence: (..., B), mean confidence; 0 in an empty bin.
        accuracy: (..., B), share of correct samples; 0 in an empty bin.
        lower: (..., B) or (B,), lower edge of each bin.
        upper: (..., B) or (B,), upper edge of each bin.
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def gap(self) -> Tensor:
        """Return confidence minus accuracy, (..., B), positive where over-confident."""
        return self.confidence - self.accuracy


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence (..., N) and the correctness (..., N) in {0, 1} of the predictions."""
    confidence, predicted = probs.max(-1)
    return confidence, (predicted == labels).to(probs.dtype)


def bin_table(
    probs: Tensor, labels: Tensor, bins: int = 15, convention: Convention = "right"
) -> BinTable:
    """Sort samples into equal-width bins of confidence.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.
        bins: number of bins B.
        convention: ``right`` uses (lo, hi], as in the papers. ``left`` uses [lo, hi) and one more
            bin for confidence 1, as torchmetrics and BalCAL. ``ceil`` uses bin ceil(B conf - 1),
            as the loop of Mukhoti's code, which rounds some edges up.

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    # Edges have the type of the probabilities, so that a confidence at an edge equals it and falls
    # into the bin below.
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    if convention == "left":
        index = torch.bucketize(confidence.contiguous(), edges, right=True) - 1
        upper = torch.cat([edges[1:], edges[-1:]])
        return _tabulate(confidence, correct, index, edges, upper)
    if convention == "ceil":
        index = torch.ceil(bins * confidence - 1).long().clamp(0, bins - 1)
    else:
        index = torch.bucketize(confidence.contiguous(), edges) - 1
    return _tabulate(confidence, correct, index, edges[:-1], edges[1:])


def _tabulate(
    confidence: Tensor, correct: Tensor, index: Tensor, lower: Tensor, upper: Tensor
) -> BinTable:
    """Build the table, leaving out samples in no bin (index -1)."""
    bins = lower.shape[-1]
    inside = index >= 0
    # An extra bin at the front collects the samples in no bin.
    zeros = torch.zeros(
        *confidence.shape[:-1], bins + 1, dtype=confidence.dtype, device=confidence.device
    )
    place = index.clamp(max=bins - 1) + 1
    count = zeros.scatter_add(-1, place, inside.to(confidence.dtype))[..., 1:]
    total = count.clamp(min=1)
    mean_confidence = zeros.scatter_add(-1, place, confidence)[..., 1:] / total
    mean_correct = zeros.scatter_add(-1, place, correct)[..., 1:] / total
    return BinTable(count, mean_confidence, mean_correct, lower, upper)


def adaptive_table(probs: Tensor, labels: Tensor, bins: int = 15) -> BinTable:
    """Sort samples into the adaptive bins of Mukhoti et al. (NeurIPS 2020).

    The edges interpolate the sorted confidences. The quirks of their code are reproduced, since all
    published tables use it: bins are (lo, hi], so that the smallest confidence is in no bin, and
    equal confidences share a bin or are in none.

    Args:
        probs: (..., N, C).
        labels: (N,).
        bins: number of bins B.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
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
    return _tabulate(confidence, correct, index, edges[..., :-1], edges[..., 1:])


def equal_mass_table(probs: Tensor, labels: Tensor, bins: int = 15) -> BinTable:
    """Sort samples into the adaptive bins of PLP: N // B per bin, and the rest in the last.

    With N < B, the authors' code returns NaN. Here all samples share the last bin.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    samples = confidence.shape[-1]
    # A stable sort, so that the bins of equal confidences do not depend on the machine.
    ordered, order = confidence.sort(dim=-1, stable=True)
    size = samples // bins
    ranks = torch.arange(samples, device=probs.device)
    index = (ranks // size).clamp(max=bins - 1) if size else torch.full_like(ranks, bins - 1)
    index = index.expand(confidence.shape)
    # Bins of ranks have no edges in confidence; these only fill the fields.
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    return _tabulate(ordered, correct.gather(-1, order), index, edges[:-1], edges[1:])
