"""Bootstrap confidence intervals of every metric over the samples of a split, in one pass.

N samples are drawn with replacement, ``resamples`` times. The weight of a sample is its count in a
draw, and all metrics of many draws are computed from weighted sums (``resampled``). Where samples
form groups, whole groups are drawn instead, until there are N samples (the cluster bootstrap;
Davison and Hinkley, 1997, section 3.8). There are two kinds of interval, both at ``LEVEL``:

- **Percentile** intervals serve metrics to which every sample contributes, such as accuracy, NLL,
  AURC and AUROC. They span the middle of the draws. The bias of these metrics is zero or small
  compared with the interval.
- **Debiased** intervals serve distances (``Metric.is_distance``) such as the ECE. Chance increases
  a distance, and the bootstrap increases it once more. Percentile intervals would therefore lie
  above the true value, and for a calibrated classifier they would never contain it. Instead, the
  observed distance is compared with the distances of a family of classifiers whose differences of
  confidence and correctness are s times the observed ones: s = 0 is calibrated, and s = 1 is the
  observed classifier. The ends are the distances of the two classifiers that would show a distance
  at least as large as the observed one, or at most as large, with probability 2.5 %. Quantiles are
  computed at s = 0, 1 and 2 (for ``classwise_debiased`` also at 0.25, 0.5 and 0.75) and
  interpolated linearly. The lower end is 0 where chance alone explains the distance. The interval
  always contains the observed distance; with tied confidences, the ends alone might exclude it.

The calibration parts of NLL and Brier score have percentile intervals too, whose upper end is at
least 0, as their true values are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.metrics.binning import top_label
from tune_calib.metrics.ood import detection_scores
from tune_calib.metrics.ranked import Ranking, cumulated
from tune_calib.metrics.resampled import AS_DRAWN, Resampled, in_bins, shares_of, table_of
from tune_calib.metrics.summary import collect_calib, compute_plugin_metrics
from tune_calib.metrics.ties import OUTPUTS, settled
from tune_calib.progress import report_progress
from tune_calib.spec.metrics import METRICS

LEVEL = 0.95
_TAIL = (1 - LEVEL) / 2
_CHUNK = 2**19  # weights processed at once


@dataclass(frozen=True)
class Interval:
    """Intervals at ``LEVEL`` of one metric of K classifiers; NaN where it is not defined."""

    lower: Tensor  # lower end, (K,)
    upper: Tensor  # upper end, (K,)
    se: Tensor  # standard error, i.e. the standard deviation over the draws, (K,)
    draws: Tensor  # the metric on each draw, (K, R)


def bootstrap(
    logits: Tensor,
    labels: Tensor,
    resamples: int = 1000,
    seed: int = 0,
    calib: tuple[Tensor, Tensor] | None = None,
    dtype: torch.dtype | None = None,
    groups: Tensor | None = None,
) -> dict[str, Interval]:
    """Compute intervals over the samples of a split, with the classifiers fixed.

    The same samples are drawn for all classifiers, and in every call with the same N and seed, so
    that classifiers can be compared draw by draw.

    Args:
        logits: (K, N, C), as for ``evaluate``, and so are ``calib`` and ``dtype``.
        labels: (N,), int64.
        resamples: number of draws of N samples with replacement.
        seed: seed of the draws.
        calib: logits (K, M, C) and labels (M,) of ``calib``.
        dtype: type in which the logits were rounded.
        groups: (N,), int64, equal for samples that are drawn together; none by default.

    Returns:
        The intervals of each metric of ``evaluate``, by name.
    """
    groups = torch.arange(len(labels)) if groups is None else groups.cpu()
    weights = draw(groups, resamples, seed).to(labels.device)
    calib_split = None
    intervals: dict[str, list[tuple[Tensor, ...]]] = {}
    for k, values in enumerate(logits.double()):
        if calib is not None:
            calib_split = collect_calib(calib[0][k].double(), calib[1], dtype or logits.dtype)
        classifier = Resampled(values, labels, calib_split, dtype or logits.dtype)
        for name, interval in _intervals(classifier, values, labels, weights).items():
            intervals.setdefault(name, []).append(interval)
    stacked = {}
    for name, parts in intervals.items():
        stacked[name] = Interval(*map(torch.stack, zip(*parts, strict=True)))
    return stacked


def draw(groups: Tensor, resamples: int, seed: int) -> Tensor:
    """Return the count of each sample in each draw of groups (N,): (resamples, N), int16.

    Groups are drawn with replacement until there are N samples, of the last group only the first
    ones. Groups of one sample each are drawn as samples are.
    """
    chance = torch.Generator().manual_seed(seed)
    samples = len(groups)
    numbers, sizes = groups.unique(return_inverse=True, return_counts=True)[1:]
    order = numbers.argsort(stable=True)
    places = torch.empty_like(order)  # of each sample in its group
    places[order] = torch.arange(samples) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    longest = -(-samples // int(sizes.min()))
    counts = torch.zeros(resamples, samples, dtype=torch.int16)
    # A few draws at a time, since the positions take eight bytes each.
    for part in counts.split(max(1, _CHUNK // samples)):
        drawn = torch.randint(len(sizes), (len(part), longest), generator=chance)
        ends = sizes[drawn].cumsum(-1)
        group_counts = torch.zeros(len(part), len(sizes), dtype=torch.int16)
        group_counts.scatter_add_(1, drawn, (ends <= samples).to(torch.int16))
        part += group_counts[:, numbers]
        # The first group that exceeds N, if any, fills up the draw.
        last = drawn.gather(1, (ends <= samples).sum(-1, keepdim=True).clamp(max=longest - 1))
        left = samples - part.sum(-1, keepdim=True)
        part += ((numbers == last) & (places < left)).to(torch.int16)
    return counts


def drawn_metrics(classifier: Resampled, weights: Tensor) -> dict[str, Tensor]:
    """Compute the metrics of a classifier on each draw (R, N), as ``Resampled.metrics``."""
    parts: dict[str, list[Tensor]] = {}
    draws = 0
    for some_weights in some_at_a_time(weights):
        report_progress("computing intervals", draws, len(weights))
        for name, values in classifier.metrics(some_weights).items():
            parts.setdefault(name, []).append(values)
        draws += len(some_weights)
    return {name: torch.cat(values, -1) for name, values in parts.items()}


def some_at_a_time(weights: Tensor) -> Iterator[Tensor]:
    """Yield weights (R, N) in float64, a few draws at a time to limit memory."""
    for part in weights.split(max(1, _CHUNK // weights.shape[-1])):
        yield part.to(torch.float64)


def drawn_under_corruption(logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Compute accuracy and ECE of logits (N, C), each (R,), on draws with weights (R, N)."""
    # The draws of all metrics for dozens of corrupted splits would take too much space.
    confidence, correct = top_label(settled(logits.double(), OUTPUTS).probs, labels)
    bins = in_bins(confidence)
    over = bins * (confidence - correct)[:, None]
    summed = torch.cat([correct[:, None], bins, over], -1)
    sums = torch.cat([part @ summed for part in some_at_a_time(weights.to(labels.device))])
    right, count, gaps = sums.split([1, bins.shape[-1], bins.shape[-1]], -1)
    samples = len(labels)
    return {"accuracy": right[:, 0] / samples, "ece": table_of(count, gaps).expected_gap(samples)}


def drawn_detection(
    inside: Tensor, outside: Tensor, inside_weights: Tensor, outside_weights: Tensor
) -> dict[str, Tensor]:
    """Compute AUROC and FPR95 of ``ood.detection``, each (R,), on draws of both sets of images."""
    weights = torch.cat([inside_weights, outside_weights], -1).to(inside.device)
    areas = {}
    for tail, (positive, negative) in detection_scores(inside, outside).items():
        areas[f"auroc{tail}"], areas[f"fpr95{tail}"] = _areas(positive, negative, weights)
    return areas


def _intervals(
    classifier: Resampled, logits: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    drawn = drawn_metrics(classifier, weights)
    # Metrics of plug-ins do not support weights.
    if compute_plugin_metrics(logits, labels, only_drawn=True):
        places = torch.arange(len(labels), device=labels.device)
        plugin_values: dict[str, list[Tensor]] = {}
        for counts in weights:
            sample = places.repeat_interleave(counts.long())
            drawn_values = compute_plugin_metrics(logits[sample], labels[sample], only_drawn=True)
            for name, value in drawn_values.items():
                plugin_values.setdefault(name, []).append(value)
        drawn |= {name: torch.stack(values) for name, values in plugin_values.items()}
    once = drawn_metrics(classifier, torch.ones_like(weights[:1]))
    plug_in = classifier.plug_in()
    intervals = {}
    for name, numbers in drawn.items():
        record = METRICS[name]
        if record.is_distance:
            value = once[name][AS_DRAWN, 0]
            lower, upper = _debiased(value, plug_in.get(name, value), numbers, shares_of(name))
            numbers = numbers[AS_DRAWN]
        else:
            lower, upper = _ends(numbers)
        if name in ("nll_calibration", "brier_calibration"):
            upper = upper.clamp(min=0)
        lower, upper = (end.clamp(record.lower, record.upper) for end in (lower, upper))
        defined = numbers[~numbers.isnan()]
        spread = defined.std() if len(defined) > 1 else numbers.new_tensor(torch.nan)
        intervals[name] = (lower, upper, spread, numbers)
    return intervals


def _debiased(
    value: Tensor, undebiased: Tensor, drawn: Tensor, shares: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Return both ends of the interval of an observed distance.

    ``undebiased`` is the distance at share 1: the observed one before debiasing, where the metric
    is debiased. ``drawn`` (S, R) holds the distances at S shares on each draw.
    """
    rising = sorted(shares)
    ordered = [drawn[shares.index(share)] for share in rising]
    low, high = torch.stack([torch.stack(_ends(numbers)) for numbers in ordered], -1)
    # The smallest share whose upper quantile reaches the value, and the largest share whose lower
    # quantile does not exceed it.
    least = _share_at(rising, high, value, undebiased, int((high < value).sum()))
    most = _share_at(rising, low, value, undebiased, int((low <= value).sum()))
    return torch.minimum(least * undebiased, value), torch.maximum(most * undebiased, value)


def _share_at(
    shares: list[float], quantiles: Tensor, value: Tensor, undebiased: Tensor, after: int
) -> Tensor:
    """Return the share at which increasing quantiles (S,) reach a value; ``after`` lie below it."""
    if after == 0:
        return torch.zeros_like(value)
    start = quantiles[after - 1]
    if after == len(shares):
        # Far from a calibrated classifier, a distance is proportional to its differences.
        width, slope = 1.0, undebiased
    else:
        width, slope = shares[after] - shares[after - 1], quantiles[after] - start
    return shares[after - 1] + width * torch.where(slope > 0, (value - start) / slope, 0)


def _ends(numbers: Tensor) -> tuple[Tensor, Tensor]:
    defined = numbers[~numbers.isnan()]
    if not len(defined):
        return numbers.new_tensor(torch.nan), numbers.new_tensor(torch.nan)
    ends = torch.tensor([_TAIL, 1 - _TAIL], dtype=defined.dtype, device=defined.device)
    low, high = defined.quantile(ends)
    return low, high


def _areas(positive: Tensor, negative: Tensor, weights: Tensor) -> Tensor:
    """Return AUROC and FPR95, (2, R), of scores (N,) and (M,) on draws with weights (R, N + M)."""
    positives, negatives = len(positive), len(negative)
    ranking = Ranking(torch.cat([positive, negative]))
    is_inside = (ranking.order < positives).to(positive.dtype)
    # The positions after each group of equal scores, and the start.
    ends = ranking.is_end.nonzero().flatten() + 1
    ends = torch.cat([ends.new_zeros(1), ends])
    areas_and_rates = []
    for part in some_at_a_time(weights):
        ordered = part[:, ranking.order]
        below = cumulated(ordered * is_inside)[:, ends]
        foreign = cumulated(ordered * (1 - is_inside))[:, ends]
        # Half of the OOD images with the same score count as below.
        area = below.diff(dim=-1) * (foreign[:, 1:] + foreign[:, :-1]) / 2
        # The false-positive rate at a true-positive rate of 95 %, as ``ood.separation``.
        rates = ((positives - below) / positives).flip(-1).contiguous()
        wrong = ((negatives - foreign) / negatives).flip(-1)
        wanted = torch.full_like(rates[:, :1], 0.95)
        after = torch.searchsorted(rates, wanted, right=True)
        low, high = rates.gather(-1, after - 1), rates.gather(-1, after)
        start, end = wrong.gather(-1, after - 1), wrong.gather(-1, after)
        rate = (start + (wanted - low) * (end - start) / (high - low))[:, 0]
        areas_and_rates.append(torch.stack([area.sum(-1) / (positives * negatives), rate]))
    return torch.cat(areas_and_rates, -1)
