"""Probabilities in which values that differ by rounding alone are equal.

The classes [0, 0.4, 0.6] and [0.1, 0.3, 0.6] have the same confidence, but their softmax differs in
the last digit. Metrics that sort samples into bins, rank them or count them would tell the two
apart. At an edge of a bin, each sample is judged alone. In ranks, two samples are equal if the
log-odds of their top classes differ by no more than the error of logits of a type. 1 - 1e-7 and
1 - 1e-9 therefore stay distinct.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 15  # number of bins of equal width, at whose edges probabilities are exact

OUTPUTS = torch.float32
"""Type in which outputs of networks are stored, whatever the type of computations with them."""

_CLIPPED = 1.001e-12
"""Probabilities of zero are often raised to 1e-12 before a logarithm; they count as zero."""

_LARGEST = 2e-5  # log-odds that differ by more are never equal; keeps the sum of a row near 1
_CHUNK = 2**21  # logits processed at once


class Settled(NamedTuple):
    """The softmax of logits, and what decides which confidences are equal."""

    probs: Tensor
    """Probabilities (..., N, C); those at an edge of the ``BINS`` bins lie exactly on it."""
    confidence: Tensor
    """Confidences (..., N) for ranks, in which those that are equal but for rounding are equal."""
    error: Tensor  # error of the log-odds of the top class, (..., N)


def settled(logits: Tensor, dtype: torch.dtype | None = None) -> Settled:
    """Return the softmax of logits (..., N, C), without differences that are due to rounding.

    The top classes do not change. ``dtype`` is the type in which the logits were rounded, that of
    ``logits`` by default.
    """
    probs = logits.softmax(-1)
    confidence, first = probs.max(-1)
    width = max(1, _CHUNK // logits.shape[-1])
    parts = [slice(row, row + width) for row in range(0, max(1, logits.shape[-2]), width)]
    summaries = [_log_odds(logits[..., rows, :], first[..., rows], dtype) for rows in parts]
    log_odds, error = (torch.cat(values, -1) for values in zip(*summaries, strict=True))
    confidence = _on_edges(confidence, error)
    # Another class at the same edge must not become the top class.
    below = torch.nextafter(confidence, torch.zeros_like(confidence))
    index = (probs > 0.5 / BINS).nonzero(as_tuple=True)  # the others are near no edge
    moved = _on_edges(probs[index], error[index[:-1]])
    probs[index] = torch.minimum(moved, below[index[:-1]])
    probs = probs.scatter_(-1, first.unsqueeze(-1), confidence.unsqueeze(-1))
    # Only in ranks: elsewhere, the values of a sample must not depend on the other samples.
    return Settled(probs, confidence.gather(-1, merged(log_odds, error)), error)


def merged(scores: Tensor, error: Tensor) -> Tensor:
    """Return for each score (..., N) the position of the largest score that equals it.

    Scores are equal if they form a run in which neighbours differ by at most their error, and which
    is no wider than two errors. In a longer run, i.e. where scores are denser than their errors,
    each score stays as it is: otherwise, a chain of small steps could join all samples.
    """
    ordered, order = scores.sort(dim=-1, stable=True)
    error = error.gather(-1, order)
    rises = ordered.diff(dim=-1) > torch.maximum(error[..., 1:], error[..., :-1])
    edge = torch.ones_like(scores[..., :1], dtype=torch.bool)
    ranks = torch.arange(scores.shape[-1], device=scores.device)
    start = torch.where(torch.cat([edge, rises], -1), ranks, 0).cummax(-1).values
    ends = torch.where(torch.cat([rises, edge], -1), ranks, len(ranks))
    end = ends.flip(-1).cummin(-1).values.flip(-1)
    width = ordered.gather(-1, end) - ordered.gather(-1, start)
    is_narrow = width <= 2 * error.gather(-1, end)
    positions = order.gather(-1, torch.where(is_narrow, end, ranks))
    return torch.empty_like(order).scatter_(-1, order, positions)


def _log_odds(logits: Tensor, first: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Return the log-odds of the top class and their error, both (..., N) float64."""
    index = first.unsqueeze(-1)
    top = logits.gather(-1, index).double()
    shares = (logits.double() - top).exp_().scatter_(-1, index, 0)  # relative to the top class
    total = shares.sum(-1, keepdim=True)
    rest = shares.masked_fill_(shares <= _CLIPPED * (1 + total), 0).sum(-1)
    # A confidence of nearly 1 leaves no larger probability.
    rest = torch.where(rest > 0, rest, total.squeeze(-1)).log()
    top = top.squeeze(-1)
    # Each logit is off by half a unit in its last place, the logarithm of a probability by another
    # half, and two samples by twice as much. The others differ from their sum by the logarithm of
    # their share, whose mean is at most log C. Computing in float64 adds its own error.
    size = 2 + top.abs() + (top + rest).abs() + log(logits.shape[-1])
    unit = torch.finfo(dtype or logits.dtype).eps + torch.finfo(torch.float64).eps
    return -rest, (unit * size).clamp(max=_LARGEST)


def _on_edges(probs: Tensor, error: Tensor) -> Tensor:
    places = probs * BINS
    nearest = places.round()
    is_near = (places - nearest).abs() <= BINS / 4 * error
    # Probabilities near 0 and 1 differ by much in their log-odds.
    is_near &= (nearest > 0) & (nearest < BINS)
    edges = torch.linspace(0, 1, BINS + 1, dtype=probs.dtype, device=probs.device)
    return torch.where(is_near, edges[torch.where(is_near, nearest, 0).long()], probs)
