"""Accuracy, mean confidence gap and proper scoring rules, and tests of accuracy against chance."""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc
from torch import Tensor

from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.validation import list_first

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
    """Return whether classes (N,) agree with labels no better than if they were independent."""
    classes = 1 + int(torch.maximum(predicted, labels).max())
    shares = [part.bincount(minlength=classes) / len(labels) for part in (predicted, labels)]
    if len(labels) < 100 or any(bool((share == 1).any()) for share in shares):
        return False
    expected = float((shares[0] * shares[1]).sum())
    right = int((predicted == labels).sum())
    return bool(bdtrc(right - 1, len(labels), expected) > _CHANCE_LEVEL)


def check_order(
    top: Tensor,
    numbers: Tensor,
    classes: NDArray[Any],
    is_certain: bool = False,
    name: str = "labels",
    way: str = "to keep them, give `classes`",
) -> None:
    """Warn where labels are no better than chance, or refuse those of another order of classes.

    ``top`` are the columns (N,) of the largest logits, and ``numbers`` those of the labels. With
    ``is_certain``, the caller gave the order of the classes, and no other order is tried.
    """
    hits = top == numbers
    share = float(hits.double().mean())
    orders = iter(()) if is_certain else _other_orders(numbers, classes)
    for other, remedy in orders:
        better = top == other
        gain = int(better.sum()) - int(hits.sum())
        if gain > 4 * max(1, int((better != hits).sum())) ** 0.5:  # standard errors
            raise ValueError(
                f"{name} agree with the largest logits in {share:.0%} of the samples, but in "
                f"{float(better.double().mean()):.0%} {remedy}; {way}"
            )
    if is_by_chance(top, numbers):
        warnings.warn(
            f"{name} agree with the largest logits in {share:.1%} of the samples, which is no "
            "better than chance; check that the classes are in the order of the columns",
            stacklevel=3,
        )


def _other_orders(numbers: Tensor, classes: NDArray[Any]) -> Iterator[tuple[Tensor, str]]:
    """Yield numbers (N,) of the labels in other orders of the classes, with the remedies."""
    if classes.dtype.kind not in "iub":
        # Numbers within names in the order of their values: a2 before a10.
        keys = [_natural_key(str(name)) for name in classes]
        order = sorted(range(len(classes)), key=lambda index: keys[index])
        if order != sorted(order):
            text = f"with classes=[{list_first(classes[order])}], in the order of their numbers"
            yield torch.tensor(order, device=numbers.device).argsort()[numbers], text
    elif np.array_equal(classes, np.arange(len(classes))):
        if int(numbers.min()) > 0:
            yield numbers - 1, "if they are lowered by 1, to begin with 0"
        if int(numbers.max()) < len(classes) - 1:
            yield numbers + 1, "if they are raised by 1"


def _natural_key(name: str) -> list[int | str]:
    parts: list[int | str] = list(re.split(r"(\d+)", name))
    parts[1::2] = map(int, parts[1::2])
    return parts


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
