"""Separation of correct and wrong predictions: areas under curves, coverage and mean entropies.

Sources: Geifman, Uziel, El-Yaniv, ICLR 2019 (AURC, E-AURC); Traub et al., NeurIPS 2024 (AUGRC);
Geifman and El-Yaniv, NeurIPS 2017 (coverage at a risk); Hendrycks and Gimpel, ICLR 2017 (AUROC of
misclassification). Areas are averages over all orders of samples of equal confidence.
"""

import torch
from torch import Tensor

from tune_calib.metrics.ood import entropy
from tune_calib.metrics.ranked import Ranked, cumulated, pick
from tune_calib.metrics.samples import Samples

_SHARES_PER_RISK = 20  # a risk of 5 % is one error in 20 samples


def aurc(samples: Samples) -> Tensor:
    """Return the area under the risk-coverage curve.

    It is the mean over n of the error rate of the n most confident samples.
    """
    ranked, total = samples.ranked, samples.total
    # Ranks before and after each group of equal confidence, counted from the most confident.
    low, high = _around(ranked, ranked.count)
    count_before, count_after = total - high, total - low
    right_low, right_high = _around(ranked, ranked.right)
    errors = count_after - count_before - (right_high - right_low)
    harmonic = _harmonic(ranked)
    harmonic_before, harmonic_after = harmonic[count_before.long()], harmonic[count_after.long()]
    # Each error of a group is at a random position within it, and from there on contributes 1/n to
    # the risk of the first n samples.
    size = (count_after - count_before).clamp(min=1)
    within_group = 1 - count_before / size * (harmonic_after - harmonic_before)
    areas = errors * (within_group + harmonic[total] - harmonic_after)
    return _summed(ranked, areas) / total


def e_aurc(samples: Samples) -> Tensor:
    """Return the AURC minus that of an ideal order, with all correct samples first."""
    ranked, total = samples.ranked, samples.total
    right = ranked.right[..., -1]
    harmonic = _harmonic(ranked)
    least = 1 - right / total * (1 + harmonic[total] - harmonic[right.round().long()])
    # Both sums are rounded, so an ideal order could fall below 0.
    return (samples.value(aurc) - least).clamp(min=0)


def augrc(samples: Samples) -> Tensor:
    """Return the area under the generalised risk-coverage curve, in [0, 0.5].

    The generalised risk of the n most confident samples is the number of errors among them, divided
    by the number of all samples. Its area under the coverage n / N, by the trapezoidal rule, is
    (1 - AUROC) acc (1 - acc) + (1 - acc)^2 / 2.
    """
    ranked = samples.ranked
    right = ranked.right[..., -1]
    errors = ranked.samples - right
    inverted = right * errors - samples.value(ordered_pairs)
    return (inverted + errors.square() / 2) / ranked.samples**2


def coverage_at_risk(samples: Samples) -> Tensor:
    """Return the largest share of samples above a confidence of which at most 5 % are wrong.

    It is 0 where every threshold leaves more errors. Samples of equal confidence are accepted
    together.
    """
    ranked = samples.ranked
    first = ranked.ranking.first
    accepted = samples.total - pick(ranked.count, first)
    errors = accepted - (ranked.right[..., -1:] - pick(ranked.right, first))
    # In whole numbers, since a risk of exactly 5 % is allowed.
    covered = torch.where(_SHARES_PER_RISK * errors <= accepted, accepted, 0)
    return covered.amax(-1) / samples.total


def error_auroc(samples: Samples) -> Tensor:
    """Return the probability that a correct sample is more confident than a wrong one.

    Ties count as half. It is NaN where all samples are correct or all are wrong.
    """
    right = samples.ranked.right[..., -1]
    return samples.value(ordered_pairs) / (right * (samples.ranked.samples - right))


def ordered_pairs(samples: Samples) -> Tensor:
    """Return the number of pairs of a wrong and a more confident correct sample; ties are half."""
    ranked = samples.ranked
    count_before, count_after = _around(ranked, ranked.count)
    low, high = _around(ranked, ranked.right)
    errors = count_after - count_before - (high - low)
    right = ranked.right[..., -1]
    # The correct samples of higher confidence, and half of those of equal confidence.
    above = right[..., None] - (low + high) / 2
    return _summed(ranked, errors * above)


def entropy_right(samples: Samples) -> Tensor:
    """Return the mean entropy of correct predictions in nats; NaN where there are none."""
    return samples.mean_among(entropies, hits=True)


def entropy_wrong(samples: Samples) -> Tensor:
    """Return the mean entropy of wrong predictions in nats; NaN where there are none."""
    return samples.mean_among(entropies, hits=False)


def entropies(samples: Samples) -> Tensor:
    """Return the entropy of each sample in nats, (..., N)."""
    return entropy(samples.probs)


def _around(ranked: Ranked, cumulative: Tensor) -> tuple[Tensor, Tensor]:
    ranks, first = ranked.with_errors, ranked.ranking.first
    return pick(cumulative, first[..., ranks]), cumulative[..., ranks + 1]


def _summed(ranked: Ranked, values: Tensor) -> Tensor:
    return (values * ranked.ranking.is_end[..., ranked.with_errors]).sum(-1)


def _harmonic(ranked: Ranked) -> Tensor:
    numbers = torch.arange(1, ranked.samples + 1, device=ranked.count.device)
    return cumulated(1 / numbers.double())
