"""Bootstrap confidence intervals of every metric over the samples of a split, in one pass.

N samples are drawn with replacement, ``resamples`` times. The weight of a sample is its count in a
draw, and all metrics of many draws are computed from weighted sums (``resampled``). There are two
kinds of interval, both at ``LEVEL``:

- **Percentile** intervals serve metrics to which every sample contributes, such as accuracy, NLL,
  AURC and AUROC. They span the middle of the draws. The bias of these metrics is zero or small
  compared with the interval.
- **Debiased** intervals serve distances (``resampled.DISTANCES``) such as the ECE. Chance increases
  a distance, and the bootstrap increases it once more. Percentile intervals would therefore lie
  above the true value, and for a calibrated classifier they would never contain it. Instead, the
  observed distance is compared with the distances of a family of classifiers whose differences of
  confidence and correctness are s times the observed ones: s = 0 is calibrated, and s = 1 is the
  observed classifier. The ends are the distances of the two classifiers that would show a distance
  at least as large as the observed one, or at most as large, with probability 2.5 %. Quantiles are
  computed at s = 0, 1 and 2 (for ``classwise_debiased`` also at 0.25, 0.5 and 0.75) and
  interpolated linearly. The lower end is 0 where chance alone explains the distance. The interval
  always contains the observed distance; with tied confidences, the ends alone might exclude it.

The calibration parts of NLL and Brier score have percentile intervals too. Their true values are
never below 0, so their upper end is at least 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.metrics import conformal
from tune_calib.metrics.resampled import AS_DRAWN, DISTANCES, Resampled, shares_of
from tune_calib.metrics.summary import compute_plugin_metrics
from tune_calib.spec.metrics import METRICS

LEVEL = 0.95
_TAIL = (1 - LEVEL) / 2
_CHUNK = 2**19  # weights processed at once


@dataclass(frozen=True)
class Interval:
    """Intervals at ``LEVEL`` of one metric of K classifiers, NaN where the metric is not defined.

    Attributes:
        lower: (K,), lower end.
        upper: (K,), upper end.
        se: (K,), standard error, i.e. the standard deviation over the draws.
        draws: (K, R), the metric on each draw.
    """

    lower: Tensor
    upper: Tensor
    se: Tensor
    draws: Tensor


def bootstrap(
    logits: Tensor,
    labels: Tensor,
    resamples: int = 1000,
    seed: int = 0,
    calib: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Interval]:
    """Compute intervals over the samples of a split, with the classifiers fixed.

    The same samples are drawn for all classifiers, and in every call with the same N and seed, so
    that classifiers can be compared draw by draw.

    Args:
        logits: (K, N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        resamples: number of draws of N samples with replacement.
        seed: seed of the draws.
        calib: logits (K, M, C) and labels (M,) of ``calib``, which determine the threshold of the
            conformal sets. Without them, the conformal metrics are left out.

    Returns:
        The intervals of each metric of ``names.METRICS``, by name. Metrics of plug-ins do not
        support weights and are computed draw by draw.

    Raises:
        ValueError: an input is out of range or not finite.
    """
    weights = draw(len(labels), resamples, seed).to(labels.device)
    limits = None
    if calib is not None:
        limits = conformal.threshold(calib[0].double().softmax(-1), calib[1])
    each = [
        _intervals(one.double(), labels, weights, None if limits is None else limits[k])
        for k, one in enumerate(logits)
    ]
    return {
        name: Interval(*(torch.stack([one[name][part] for one in each]) for part in range(4)))
        for name in each[0]
    }


def draw(samples: int, resamples: int, seed: int) -> Tensor:
    """Return the count of each sample in each draw: (resamples, samples), int16."""
    chance = torch.Generator().manual_seed(seed)
    counts = torch.zeros(resamples, samples, dtype=torch.int16)
    # A few draws at a time, since the positions take eight bytes each.
    for part in counts.split(max(1, _CHUNK // samples)):
        places = torch.randint(samples, part.shape, generator=chance)
        part.scatter_add_(1, places, torch.ones_like(part))
    return counts


def drawn_metrics(classifier: Resampled, weights: Tensor) -> dict[str, Tensor]:
    """Compute the metrics of one classifier on each draw.

    Args:
        classifier: the prepared classifier.
        weights: (R, N), as returned by ``draw``.

    Returns:
        A tensor for each metric: (R,), or (S, R) for ``DISTANCES``, with the S shares of
        ``shares_of``.
    """
    parts = [classifier.metrics(part) for part in some_at_a_time(weights)]
    return {name: torch.cat([part[name] for part in parts], -1) for name in parts[0]}


def some_at_a_time(weights: Tensor) -> Iterator[Tensor]:
    """Yield weights (R, N) in float64, a few draws at a time to limit memory."""
    for part in weights.split(max(1, _CHUNK // weights.shape[-1])):
        yield part.to(torch.float64)


def _intervals(
    logits: Tensor, labels: Tensor, weights: Tensor, limit: Tensor | None
) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    classifier = Resampled(logits, labels, limit)
    drawn = drawn_metrics(classifier, weights) | _of_plugins(logits, labels, weights)
    once = drawn_metrics(classifier, torch.ones_like(weights[:1]))
    plug_in = classifier.plug_in()
    found = {}
    for name, numbers in drawn.items():
        if name in DISTANCES:
            value = once[name][AS_DRAWN, 0]
            lower, upper = _debiased(value, plug_in.get(name, value), numbers, shares_of(name))
            numbers = numbers[AS_DRAWN]
        else:
            lower, upper = _ends(numbers)
        if name in ("nll_calibration", "brier_calibration"):
            upper = upper.clamp(min=0)
        record = METRICS[name]
        lower, upper = (end.clamp(record.lower, record.upper) for end in (lower, upper))
        found[name] = (lower, upper, _spread(numbers), numbers)
    return found


def _of_plugins(logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    if not compute_plugin_metrics(logits, labels):
        return {}
    places = torch.arange(len(labels), device=labels.device)
    own = [places.repeat_interleave(counts.long()) for counts in weights]
    each = [compute_plugin_metrics(logits[drawn], labels[drawn]) for drawn in own]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def _debiased(
    value: Tensor, whole: Tensor, drawn: Tensor, shares: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Return both ends of the interval of a distance.

    Args:
        value: the observed distance.
        whole: distance of the classifier at share 1: the observed value, before debiasing where
            the metric is debiased.
        drawn: (S, R), distances of the classifiers at these shares on each draw.
        shares: the S shares.
    """
    ends = {
        share: torch.stack(_ends(numbers)) for share, numbers in zip(shares, drawn, strict=True)
    }
    rising = sorted(shares)
    low, high = torch.stack([ends[share] for share in rising], -1)
    # The smallest share whose upper quantile reaches the value, and the largest share whose lower
    # quantile does not exceed it.
    least = _share_at(rising, high, value, whole, int((high < value).sum()))
    most = _share_at(rising, low, value, whole, int((low <= value).sum()))
    return torch.minimum(least * whole, value), torch.maximum(most * whole, value)


def _share_at(
    shares: list[float], quantiles: Tensor, value: Tensor, whole: Tensor, after: int
) -> Tensor:
    """Return the share at which increasing quantiles (S,) reach a value; ``after`` lie below it."""
    if after == 0:
        return torch.zeros_like(value)
    start = quantiles[after - 1]
    if after == len(shares):
        # Far from a calibrated classifier, a distance is proportional to its differences.
        width, slope = 1.0, whole
    else:
        width, slope = shares[after] - shares[after - 1], quantiles[after] - start
    return shares[after - 1] + width * torch.where(slope > 0, (value - start) / slope, 0)


def _ends(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return both quantiles over the draws where the metric is defined, or NaN without any."""
    known = numbers[~numbers.isnan()]
    if not len(known):
        return numbers.new_tensor(torch.nan), numbers.new_tensor(torch.nan)
    ends = torch.tensor([_TAIL, 1 - _TAIL], dtype=known.dtype, device=known.device)
    low, high = known.quantile(ends)
    return low, high


def _spread(numbers: Tensor) -> Tensor:
    known = numbers[~numbers.isnan()]
    return known.std() if len(known) > 1 else numbers.new_tensor(torch.nan)
