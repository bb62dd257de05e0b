"""Accuracy, mean confidence gap and proper scoring rules, and tests of accuracy against chance."""

import torch
from scipy.special import bdtrc
from torch import Tensor

from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.samples import Samples

_CHANCE_LEVEL = 1e-3
_CHUNK = 2**21  # probabilities of one classifier processed at once


def accuracy(samples: Samples) -> Tensor:
    """Return the share of correct predictions, in [0, 1]."""
    return samples.mean(hits)


def confidence_gap(samples: Samples) -> Tensor:
    """Return the mean confidence minus the accuracy, in [-1, 1], positive if over-confident."""
    return samples.mean(gaps)


def confidence_gap_se(samples: Samples) -> Tensor:
    """Return the standard error of the confidence gap."""
    return samples.standard_error(gaps)


def sharpness(samples: Samples) -> Tensor:
    """Return the variance of the confidence, in [0, 0.25]; 0 if all samples have the same one."""
    return (samples.mean(squared_confidences) - samples.mean(confidences).square()).clamp(min=0)


def nll(samples: Samples) -> Tensor:
    """Return the negative log-likelihood in nats, exact even for saturated logits."""
    return samples.mean(losses)


def brier(samples: Samples) -> Tensor:
    """Return the Brier score, the mean squared distance to the one-hot label, in [0, 2]."""
    return samples.mean(squared_distances)


def nll_calibration(samples: Samples) -> Tensor:
    """Return the reduction of the NLL by the best temperature (``refinement``)."""
    return samples.mean_difference(losses, refined_losses)


def nll_refinement(samples: Samples) -> Tensor:
    """Return the NLL after the best temperature."""
    return samples.mean(refined_losses)


def brier_calibration(samples: Samples) -> Tensor:
    """Return the reduction of the Brier score by the temperature with the best NLL."""
    return samples.mean_difference(squared_distances, refined_squared_distances)


def brier_refinement(samples: Samples) -> Tensor:
    """Return the Brier score after the temperature with the best NLL."""
    return samples.mean(refined_squared_distances)


def hits(samples: Samples) -> Tensor:
    """Return whether each prediction is correct: (..., N) in {0, 1}."""
    return samples.top_label[1]


def confidences(samples: Samples) -> Tensor:
    """Return the confidence of each sample, (..., N)."""
    return samples.top_label[0]


def squared_confidences(samples: Samples) -> Tensor:
    """Return the squared confidence of each sample, (..., N)."""
    return samples.top_label[0].square()


def gaps(samples: Samples) -> Tensor:
    """Return the confidence minus the hit of each sample, (..., N)."""
    confidence, correct = samples.top_label
    return confidence - correct


def losses(samples: Samples) -> Tensor:
    """Return the NLL of each sample, (..., N)."""
    logits = samples.logits
    if not bool(logits.isfinite().all()):
        raise ValueError("logits must be finite, got NaN or infinity")
    return -at_labels(logits.log_softmax(-1), samples.labels)


def refined_losses(samples: Samples) -> Tensor:
    """Return the NLL of each sample at its best temperature, (..., N)."""
    return samples.refined[0]


def refined_squared_distances(samples: Samples) -> Tensor:
    """Return the squared distances at the same temperature, (..., N)."""
    return samples.refined[1]


def is_at_chance(predicted: Tensor, labels: Tensor) -> bool:
    """Return whether predicted classes (N,) are no better than always the most frequent class.

    Under the null hypothesis of a one-sided binomial test, each prediction is correct with a
    probability equal to the share of that class.
    """
    right = int((predicted == labels).sum())
    share = int(labels.bincount().max()) / len(labels)
    # bdtrc(k) is the probability of more than k, hence the - 1. scipy.stats offers the same under
    # a better-known name but takes half a second to import.
    return bool(bdtrc(right - 1, len(labels), share) > _CHANCE_LEVEL)


def is_by_chance(predicted: Tensor, labels: Tensor) -> bool:
    """Return whether classes (N,) agree with labels no better than if they were independent.

    It is False where fewer than a hundred samples, or a single class, cannot tell.
    """
    classes = 1 + int(torch.maximum(predicted, labels).max())
    shares = [part.bincount(minlength=classes) / len(labels) for part in (predicted, labels)]
    if len(labels) < 100 or any(bool((share == 1).any()) for share in shares):
        return False
    expected = float((shares[0] * shares[1]).sum())
    right = int((predicted == labels).sum())
    return bool(bdtrc(right - 1, len(labels), expected) > _CHANCE_LEVEL)


def squared_distances(samples: Samples) -> Tensor:
    """Return the squared distance of each sample to its one-hot label, (..., N)."""
    probs, squares = samples.probs, []
    width = max(1, _CHUNK // probs.shape[-1])
    for part, labels in zip(probs.split(width, -2), samples.labels.split(width), strict=True):
        # Without a one-hot label in memory.
        targets = labels.expand(part.shape[:-1]).unsqueeze(-1)
        distances = part.scatter(-1, targets, part.gather(-1, targets) - 1)
        squares.append(distances.square().sum(-1))
    return torch.cat(squares, -1)
