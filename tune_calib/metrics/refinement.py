"""Calibration and refinement part of NLL and Brier score (Berta et al., arXiv 2501.19195).

The refinement part is what is left after the best temperature; the calibration part is what the
temperature takes off. The temperature is found on the same labels by cross-fitting: each fold of
them is scored with the temperature of the others, so that none is fitted and scored on the same
sample, and the calibration part may come out slightly below 0.
"""

import math

import torch
from torch import Tensor

FOLDS = 5
HOTTEST = 100.0  # temperatures are sought in [1 / HOTTEST, HOTTEST]
_TOLERANCE = 1e-6  # of log T; the loss is flat there
_STEPS = 60
_CHUNK = 2**17  # logits that are worked on at once, so that they stay in the cache


def cross_fitted(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """NLL and Brier score of each sample after the temperature of the other folds.

    Folds are by position (every fifth sample); of a single sample the temperature is 1.

    Args:
        logits: (..., N, C), float64, finite.
        labels: (N,), int64.

    Returns:
        Both (..., N).
    """
    scale = torch.ones_like(logits[..., 0])
    start = inverse_temperature(logits, labels) if len(labels) > 1 else None
    fold_of = torch.arange(len(labels), device=labels.device) % FOLDS
    for fold in range(min(FOLDS, len(labels)) if len(labels) > 1 else 0):
        own = fold_of == fold
        # From the temperature of all samples, since those of folds are near it.
        inverse = inverse_temperature(logits, labels, ~own, start)
        scale[..., own] = inverse[..., None]
    return scores(logits, labels, scale)


def scores(logits: Tensor, labels: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """NLL in nats and Brier score (sum over classes) of each sample: (..., N, C) to (..., N).

    Args:
        logits: (..., N, C).
        labels: (N,).
        scale: (..., N), what the logits of each sample are multiplied by; 1 unless given.
    """
    found = []
    for rows in _parts(logits):
        part = logits[..., rows, :]
        if scale is not None:
            part = part * scale[..., rows, None]
        log_probs = part.log_softmax(-1)
        targets = labels[rows].expand(part.shape[:-1]).unsqueeze(-1)
        own = log_probs.gather(-1, targets).squeeze(-1)
        found.append((-own, log_probs.exp().square().sum(-1) - 2 * own.exp() + 1))
    nll, brier = (torch.cat(parts, -1) for parts in zip(*found, strict=True))
    return nll, brier


def inverse_temperature(
    logits: Tensor, labels: Tensor, kept: Tensor | None = None, start: Tensor | None = None
) -> Tensor:
    """1 / T of the smallest NLL, by Newton's method on log T within a shrinking bracket.

    Args:
        logits: (..., N, C), float64, finite.
        labels: (N,), int64.
        kept: (N,), which samples count; all unless given.
        start: (...), a guess; 1 unless given.

    Returns:
        (...); an end of the range where the NLL falls without end.
    """
    bound = math.log(HOTTEST)
    low = logits.new_full(logits.shape[:-2], -bound)
    high = -low
    at = torch.zeros_like(low) if start is None else start.log()
    is_found = torch.zeros_like(low, dtype=torch.bool)
    for _ in range(_STEPS):
        slope, curvature = _derivatives(logits, labels, at.exp(), kept)
        # The NLL is convex in 1/T: its slope says on which side the minimum lies.
        low, high = torch.where(slope < 0, at, low), torch.where(slope < 0, high, at)
        step = slope / (at.exp() * curvature)
        newton = at - torch.where(step.isfinite(), step, torch.inf)
        is_inside = (newton > low) & (newton < high)
        new = torch.where(is_inside, newton, (low + high) / 2)
        is_near = (new - at).abs() < _TOLERANCE
        # Each classifier stops by itself, so that its numbers do not depend on the others.
        at = torch.where(is_found, at, new)
        is_found |= is_near
        if bool(is_found.all()):
            break
    return at.exp()


def _derivatives(
    logits: Tensor, labels: Tensor, inverse: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    """First and second derivative by 1/T of the mean NLL of the samples that are kept."""
    slope, curvature = torch.zeros_like(inverse), torch.zeros_like(inverse)
    for rows in _parts(logits):
        part, own = logits[..., rows, :], labels[rows]
        if kept is not None:
            part, own = part[..., kept[rows], :], own[kept[rows]]
        probs = (part * inverse[..., None, None]).softmax(-1)
        mean = (probs * part).sum(-1, keepdim=True)
        target = part.gather(-1, own.expand(part.shape[:-1]).unsqueeze(-1))
        slope += (mean - target).sum((-1, -2))
        curvature += (probs * (part - mean).square()).sum((-1, -2))
    count = len(labels) if kept is None else int(kept.sum())
    return slope / count, curvature / count


def _parts(logits: Tensor) -> list[slice]:
    """Rows that are worked on at once: a thousand classes of many samples need much memory."""
    samples, width = logits.shape[-2], max(1, _CHUNK // logits.shape[-1])
    return [slice(first, first + width) for first in range(0, samples, width)]
