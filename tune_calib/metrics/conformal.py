"""Size and coverage of split conformal prediction sets.

A set holds every class k whose score is at most a threshold, which is a quantile of the scores of
the true classes on ``calib``, with the finite-sample correction of Angelopoulos and Bates (2021).
It covers the true class of a new sample with at least the requested probability, whatever the
classifier. Scores are not randomised, so a set may be empty:

- ``conformal``: 1 - p[k] (Sadinle, Lei and Wasserman, JASA 2019).
- ``aps``: the sum of p[k] and of all larger probabilities (Romano, Sesia and Candès, NeurIPS 2020).
- ``raps``: the same plus ``PENALTY`` for each rank above ``FREE_RANKS`` (Angelopoulos et al., ICLR
  2021; values of Angelopoulos and Bates, 2021).
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

COVERAGE = 0.9
"""Requested probability that a set holds the true class."""

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


def conformal_size(samples: Samples) -> Tensor:
    """Return the mean number of classes in a set."""
    return samples.mean(set_sizes)


def conformal_coverage(samples: Samples) -> Tensor:
    """Return the share of sets that hold the true class, in [0, 1]."""
    return samples.mean(covered)


def set_sizes(samples: Samples) -> Tensor:
    """Count the classes in the set of each sample, (..., N)."""
    probs, limit = samples.probs, samples.value(_threshold)[..., None, None]
    return (1 - probs <= limit).sum(-1).to(probs.dtype)


def covered(samples: Samples) -> Tensor:
    """Return whether the set of each sample holds its true class: (..., N) in {0, 1}."""
    probs, limit = samples.probs, samples.value(_threshold)[..., None]
    return (1 - at_labels(probs, samples.labels) <= limit).to(probs.dtype)


def _threshold(samples: Samples) -> Tensor:
    return threshold(*samples.calib)


def _quantile(scores: Tensor) -> Tensor:
    """Return the threshold for scores (..., M) of true classes, infinite if M is too small."""
    rank = math.ceil((scores.shape[-1] + 1) * COVERAGE)
    if rank > scores.shape[-1]:
        return scores.new_full(scores.shape[:-1], torch.inf)
    return scores.kthvalue(rank, -1).values


def _cumulated(probs: Tensor, penalty: float) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    excess = torch.arange(1 - FREE_RANKS, probs.shape[-1] + 1 - FREE_RANKS, device=probs.device)
    scores = ordered.cumsum(-1) + penalty * excess.clamp(min=0)
    return torch.empty_like(probs).scatter_(-1, order, scores)


def _sets_by_rank(penalty: float, samples: Samples) -> Tensor:
    """Return which classes are in the set of each sample, (..., N, C) bool."""
    calib = samples.calib
    limit = _quantile(at_labels(_cumulated(calib.probs, penalty), calib.labels))
    return _cumulated(samples.probs, penalty) <= limit[..., None, None] + _ROUNDING


_aps_sets, _raps_sets = partial(_sets_by_rank, 0.0), partial(_sets_by_rank, PENALTY)


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


def _metric(values: Callable[..., Tensor], sets: SampleValues) -> Callable[[Samples], Tensor]:
    of_samples = partial(values, sets)
    return lambda samples: samples.mean(of_samples)


aps_size, aps_coverage = _metric(_sizes, _aps_sets), _metric(_covers, _aps_sets)
raps_size, raps_coverage = _metric(_sizes, _raps_sets), _metric(_covers, _raps_sets)
class_conditional_size = _metric(_sizes, _class_conditional_sets)
class_conditional_coverage = _metric(_covers, _class_conditional_sets)
