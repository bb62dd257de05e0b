"""Size and coverage of split conformal prediction sets.

A set holds every class k whose score is at most a threshold, which is a quantile of the scores of
the true classes on ``calib``, with the finite-sample correction of Angelopoulos and Bates (2021).
It covers the true class of a new sample with at least the requested probability, whatever the
classifier. A set may be empty:

- ``conformal``: 1 - p[k] (Sadinle, Lei and Wasserman, JASA 2019).
- ``aps``: the sum of all larger probabilities and of a uniform random part of p[k] (Romano, Sesia
  and Candès, NeurIPS 2020). All classifiers have the same random parts, in every run.
- ``unrandomised_aps``: the sum of p[k] and of all larger probabilities, whose sets cover more.
- ``raps``: ``unrandomised_aps`` plus ``PENALTY`` for each rank above ``FREE_RANKS`` (Angelopoulos
  et al., ICLR 2021; values of Angelopoulos and Bates, 2021).
- ``class_conditional``: 1 - p[k] with a threshold for each class from its own samples, so that each
  class is covered. A class with too few samples in ``calib`` is in every set.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.samples import Samples, SampleValues

COVERAGE = 0.9  # requested probability that a set holds the true class

PENALTY, FREE_RANKS = 0.01, 5
_ROUNDING = 1e-6  # scores that differ by less are equal


def threshold(probs: Tensor, labels: Tensor, error: Tensor | None = None) -> Tensor:
    """Return the largest 1 - p[k] of a class in a set: (..., M, C), (M,) on ``calib`` to (...).

    Where M is too small for ``COVERAGE``, it is 1, and every set holds every class. With the
    ``error`` of the log-odds (..., M), classes at the threshold but for rounding are in the set.
    """
    rank = math.ceil((len(labels) + 1) * COVERAGE)
    if rank > len(labels):
        return torch.ones_like(probs[..., 0, 0])
    scores, order = (1 - at_labels(probs, labels)).sort(-1)
    limit = scores[..., rank - 1]
    if error is not None:
        limit = limit + error.gather(-1, order)[..., rank - 1] * limit * (1 - limit)
    return limit


def _sets(samples: Samples) -> Tensor:
    return 1 - samples.probs <= threshold(*samples.calib)[..., None, None]


def _quantile(scores: Tensor) -> Tensor:
    """Return the threshold for scores (..., M) of true classes, infinite if M is too small."""
    rank = math.ceil((scores.shape[-1] + 1) * COVERAGE)
    if rank > scores.shape[-1]:
        return scores.new_full(scores.shape[:-1], torch.inf)
    return scores.kthvalue(rank, -1).values


def _cumulated(probs: Tensor, penalty: float, part: Tensor | float = 1.0) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    excess = torch.arange(1 - FREE_RANKS, probs.shape[-1] + 1 - FREE_RANKS, device=probs.device)
    scores = ordered.cumsum(-1) - (1 - part) * ordered + penalty * excess.clamp(min=0)
    return torch.empty_like(probs).scatter_(-1, order, scores)


def _sets_by_rank(penalty: float, samples: Samples, *, is_random: bool = False) -> Tensor:
    """Return which classes are in the set of each sample, (..., N, C) bool."""
    calib = samples.calib
    parts: list[Tensor | float] = [1.0, 1.0]
    if is_random:
        parts = []
        for seed, probs in enumerate((calib.probs, samples.probs)):
            chance = torch.Generator().manual_seed(seed)
            part = torch.rand(probs.shape[-2], 1, generator=chance, dtype=torch.float64)
            parts.append(part.to(probs))
    limit = _quantile(at_labels(_cumulated(calib.probs, penalty, parts[0]), calib.labels))
    return _cumulated(samples.probs, penalty, parts[1]) <= limit[..., None, None] + _ROUNDING


def _class_conditional_sets(samples: Samples) -> Tensor:
    calib = samples.calib
    scores = 1 - at_labels(calib.probs, calib.labels)
    classes = range(calib.probs.shape[-1])
    limits = torch.stack([_quantile(scores[..., calib.labels == label]) for label in classes], -1)
    return 1 - samples.probs <= limits[..., None, :] + _ROUNDING


def _sizes(sets: SampleValues, samples: Samples) -> Tensor:
    return samples.value(sets).sum(-1).to(samples.probs.dtype)


def _covers(sets: SampleValues, samples: Samples) -> Tensor:
    labels = samples.labels.expand(samples.probs.shape[:-1])
    return samples.value(sets).gather(-1, labels[..., None])[..., 0].to(samples.probs.dtype)


set_sizes, covered = partial(_sizes, _sets), partial(_covers, _sets)


def _metric(values: SampleValues) -> Callable[[Samples], Tensor]:
    return lambda samples: samples.mean(values)


def _metrics(sets: SampleValues) -> list[Callable[[Samples], Tensor]]:
    return [_metric(partial(_sizes, sets)), _metric(partial(_covers, sets))]


conformal_size, conformal_coverage = _metric(set_sizes), _metric(covered)
aps_size, aps_coverage = _metrics(partial(_sets_by_rank, 0.0, is_random=True))
unrandomised_aps_size, unrandomised_aps_coverage = _metrics(partial(_sets_by_rank, 0.0))
raps_size, raps_coverage = _metrics(partial(_sets_by_rank, PENALTY))
class_conditional_size, class_conditional_coverage = _metrics(_class_conditional_sets)
