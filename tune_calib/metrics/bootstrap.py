"""Intervals of every metric over the samples of a split, by the bootstrap, in one pass.

``resamples`` times N samples are drawn with replacement: how often each was drawn is its weight,
and all metrics of many draws are sums of weights (``resampled``). Two kinds of interval, both at
``LEVEL``:

- **Percentile** intervals of metrics that samples have a part in each, such as accuracy, NLL, AURC
  and AUROC: the middle of the draws. Their bias is none, or far within the interval.
- **Debiased** intervals of distances (``resampled.DISTANCES``), as the ECE: chance adds to a
  distance, and the bootstrap adds it once more, so that percentile intervals lie above the truth,
  and of a calibrated classifier hold it never. So the observed distance is compared with those of a
  family of classifiers, whose differences of confidence and correctness are s times the observed
  ones: s = 0 is calibrated, s = 1 as observed. The ends are the distances of the two classifiers
  that would show a distance as large as the observed one, or as small, with 2.5 % (quantiles at s =
  0, 1 and 2, of ``classwise_debiased`` at quarters below 1 too, in between by a straight line). The
  lower end is 0 where chance alone explains the distance. The observed distance is always within:
  where confidences are tied, the ends alone might leave it out.

The calibration parts of NLL and Brier score, percentiles too, are in truth never below 0: their
upper end is at least 0.
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
_CHUNK = 2**19  # weights that are worked on at once


@dataclass(frozen=True)
class Interval:
    """Intervals at ``LEVEL`` of one metric of K classifiers; NaN where it is not defined.

    Attributes:
        lower: (K,), lower end.
        upper: (K,), upper end.
        se: (K,), standard error: the standard deviation of the draws.
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
    """Intervals over the samples of a split, the classifiers as they are.

    The same samples are drawn for all classifiers, and for any that are given with the same N and
    seed: differences between them can be compared draw by draw.

    Args:
        logits: (K, N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        resamples: how often N samples are drawn with replacement.
        seed: of the draws.
        calib: logits (K, M, C) and labels (M,) of ``calib``, whose threshold conformal sets have;
            without it there are none.

    Returns:
        Name of ``names.METRICS`` to its intervals. Metrics of plug-ins, which know no weights, are
        computed draw by draw.

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
    """Return how often each sample is drawn: (resamples, samples), int16."""
    chance = torch.Generator().manual_seed(seed)
    counts = torch.zeros(resamples, samples, dtype=torch.int16)
    # Some draws at a time, since all places at once would take eight bytes each.
    for part in counts.split(max(1, _CHUNK // samples)):
        places = torch.randint(samples, part.shape, generator=chance)
        part.scatter_add_(1, places, torch.ones_like(part))
    return counts


def drawn_metrics(classifier: Resampled, weights: Tensor) -> dict[str, Tensor]:
    """Metrics of one classifier on each draw.

    Args:
        classifier: prepared.
        weights: (R, N), as of ``draw``.

    Returns:
        Name to (R,), of ``DISTANCES`` to (``shares_of``, R).
    """
    parts = [classifier.metrics(part) for part in some_at_a_time(weights)]
    return {name: torch.cat([part[name] for part in parts], -1) for name in parts[0]}


def some_at_a_time(weights: Tensor) -> Iterator[Tensor]:
    """Weights (R, N) of a few draws at a time, in float64: all at once would fill the memory."""
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
    """Ends of a distance.

    Args:
        value: that was observed.
        whole: what the distance of the classifier at share 1 is: the value with its bias, if it
            was taken off.
        drawn: (S, R), what is observed of classifiers at these shares.
        shares: S of them.
    """
    ends = {
        share: torch.stack(_ends(numbers)) for share, numbers in zip(shares, drawn, strict=True)
    }
    rising = sorted(shares)
    low, high = torch.stack([ends[share] for share in rising], -1)
    # The smallest share at which large distances are no longer below the value, and the largest at
    # which small ones are not yet above it.
    least = _share_at(rising, high, value, whole, int((high < value).sum()))
    most = _share_at(rising, low, value, whole, int((low <= value).sum()))
    return torch.minimum(least * whole, value), torch.maximum(most * whole, value)


def _share_at(
    shares: list[float], quantiles: Tensor, value: Tensor, whole: Tensor, after: int
) -> Tensor:
    """The share at which rising quantiles (S,) are at a value, ``after`` so many below."""
    if after == 0:
        return torch.zeros_like(value)
    start = quantiles[after - 1]
    if after == len(shares):
        # Far from a calibrated classifier a distance rises as its differences do.
        width, slope = 1.0, whole
    else:
        width, slope = shares[after] - shares[after - 1], quantiles[after] - start
    return shares[after - 1] + width * torch.where(slope > 0, (value - start) / slope, 0)


def _ends(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Both quantiles of the draws in which the metric is defined; NaN if it is in none."""
    known = numbers[~numbers.isnan()]
    if not len(known):
        return numbers.new_tensor(torch.nan), numbers.new_tensor(torch.nan)
    ends = torch.tensor([_TAIL, 1 - _TAIL], dtype=known.dtype, device=known.device)
    low, high = known.quantile(ends)
    return low, high


def _spread(numbers: Tensor) -> Tensor:
    known = numbers[~numbers.isnan()]
    return known.std() if len(known) > 1 else numbers.new_tensor(torch.nan)
