"""Size and coverage of split conformal prediction sets (Sadinle, Lei and Wasserman, JASA 2019).

A set holds every class k whose score 1 - p[k] is at most a threshold, which is a quantile of the
scores of the true classes on ``calib``, with the finite-sample correction of Angelopoulos and Bates
(2021). It covers the true class of a new sample with at least the requested probability, whatever
the classifier. Scores are not randomised, so a set may be empty.
"""

import math

import torch
from torch import Tensor

from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.samples import Samples

COVERAGE = 0.9
"""Requested probability that a set holds the true class."""


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
