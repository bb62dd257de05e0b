"""Reliability bins of top-label confidence, batched over leading axes."""

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
        confidence: (..., B), their mean confidence; 0 in an empty bin.
        accuracy: (..., B), share of them that is right; 0 in an empty bin.
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
        """Confidence minus accuracy, (..., B): positive where over-confident."""
        return self.confidence - self.accuracy


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence (..., N) and correctness (..., N) in {0, 1} of the largest probability."""
    confidence, predicted = probs.max(-1)
    return confidence, (predicted == labels).to(probs.dtype)


def bin_table(
    probs: Tensor, labels: Tensor, bins: int = 15, convention: Convention = "right"
) -> BinTable:
    """Equal-width bins of confidence.

    Args:
        probs: (..., N, C), rows sum to 1.
        labels: (N,), int64.
        bins: B.
        convention: ``right``: (lo, hi], the papers'; ``left``: [lo, hi) with one more bin for
            confidence 1, as torchmetrics and BalCAL; ``ceil``: bin ceil(B conf - 1), the loop
            of Mukhoti's code, which rounds some edges up.

    Raises:
        ValueError: an input is out of range, not finite or of the wrong shape.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    # In the type of the probabilities: a confidence that is an edge must equal it, and falls into
    # the bin below.
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
    """Sum up bins; index -1 (a value in no bin) is left out."""
    bins = lower.shape[-1]
    inside = index >= 0
    # One more bin at the front takes what belongs to none.
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
    """Adaptive bins of Mukhoti et al. (NeurIPS 2020): edges interpolate the sorted confidences.

    The quirks of their code are reproduced, since all published tables use it: bins are (lo, hi],
    so that the smallest confidence is in none; equal confidences share a bin or are in none.

    Args:
        probs: (..., N, C).
        labels: (N,).
        bins: B.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    samples = confidence.shape[-1]
    ordered = confidence.sort(-1).values
    # In float64 as in numpy: an edge that is rounded otherwise than the confidence it stands for
    # would put that sample into the next bin.
    # numpy.interp at j N/B over positions 0..N-1, the last edge clamped to the largest.
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
    """Adaptive bins of PLP: N // B sorted samples a bin, the rest in the last.

    With N < B the reference gives NaN; here all samples share the last bin.
    """
    check(probs, labels)
    confidence, correct = top_label(probs, labels)
    samples = confidence.shape[-1]
    # Stable: which of equal confidences falls into which bin must not depend on the machine.
    ordered, order = confidence.sort(dim=-1, stable=True)
    size = samples // bins
    ranks = torch.arange(samples, device=probs.device)
    index = (ranks // size).clamp(max=bins - 1) if size else torch.full_like(ranks, bins - 1)
    index = index.expand(confidence.shape)
    # Bins of ranks have no edges in confidence; these only fill the record.
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
    return _tabulate(ordered, correct.gather(-1, order), index, edges[:-1], edges[1:])
