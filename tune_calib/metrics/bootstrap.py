"""Intervals of every metric over the test samples, by the bootstrap."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.metrics.summary import evaluate

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """Intervals at ``LEVEL`` of one metric of K classifiers.

    Attributes:
        lower: (K,), lower end.
        upper: (K,), upper end.
        se: (K,), standard error.
    """

    lower: Tensor
    upper: Tensor
    se: Tensor


def bootstrap(
    logits: Tensor,
    labels: Tensor,
    resamples: int = 1000,
    seed: int = 0,
    calib: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Interval]:
    """Intervals over the samples of a split, the classifiers as they are.

    Args:
        logits: (K, N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        resamples: how often N samples are drawn with replacement, the same for all classifiers.
        seed: of the draws.
        calib: logits (K, M, C) and labels (M,) of ``calib``, which metrics of conformal sets need.

    Returns:
        Name of ``names.METRICS`` to its intervals.

    Raises:
        ValueError: an input is out of range or not finite.
    """
    chance = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(labels), (resamples, len(labels)), generator=chance)
    found = [evaluate(logits[:, own], labels[own]) for own in drawn.to(labels.device)]
    ends = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
    intervals = {}
    for name in found[0]:
        values = torch.stack([one[name] for one in found]).double()
        lower, upper = values.quantile(ends.to(values.device), dim=0)
        intervals[name] = Interval(lower, upper, values.std(0))
    return intervals
