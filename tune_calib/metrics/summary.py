"""All metrics of ``names.METRICS`` that are computed on one labelled split.

Logits are (..., N, C), unnormalised (or log-probabilities), finite. Labels are (N,) int64. Invalid
inputs raise ValueError.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from tune_calib.metrics import conformal
from tune_calib.metrics.binning import BinTable, bin_table, top_label
from tune_calib.metrics.calibration import aece, cece, classwise_debiased, ece_of, errors_of
from tune_calib.metrics.equal_mass import debiased_ece, ks_error, sweep_ece
from tune_calib.metrics.ood import entropy
from tune_calib.metrics.ranked import Ranked, Ranking
from tune_calib.metrics.refinement import cross_fitted
from tune_calib.metrics.scoring import accuracy, brier, nll_from_logits
from tune_calib.metrics.selective import aurc, e_aurc, error_auroc, mean_where
from tune_calib.metrics.smooth import on_grid, smooth_ece
from tune_calib.metrics.ties import OUTPUTS, settled
from tune_calib.spec.metrics import CORRUPTION_METRICS, METRICS

Split = tuple[Tensor, Tensor]
"""Logits (..., N, C) and labels (N,) of a split."""


def evaluate(
    logits: Tensor,
    labels: Tensor,
    calib: Split | None = None,
    in_search: bool = False,
    dtype: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Compute every metric of a head batch on one split, with the bins counted once.

    Args:
        logits: (..., N, C).
        labels: (N,).
        calib: ``calib`` split of the same classifiers. Without it the conformal metrics are left
            out.
        in_search: compute only the metrics that trials of a search report.
        dtype: type in which the logits were rounded (``ties.settled``), their own by default.

    Returns:
        A tensor (...) for each name: fractions in [0, 1], NLL in nats, Brier score summed over
        classes. NaN where a metric is not defined, such as a mean over correct samples where no
        sample is correct.

    Raises:
        ValueError: an input is out of range or not finite, or a metric of a plug-in is out of
            bounds.
    """
    probs, confidence, _ = settled(logits, dtype)
    table = bin_table(probs, labels)
    found = {
        **_regime(logits, probs, labels, table),
        **errors_of(table, len(labels)),
        "aece": aece(probs, labels, confidence=confidence),
        "cece": cece(probs, labels),
        "brier": brier(probs, labels),
        **_of_ranks(probs, labels, confidence, in_search),
        **compute_plugin_metrics(logits, labels),
    }
    if not in_search:
        found |= _costly(logits, probs, labels, found)
        if calib is not None:
            of_calib = settled(calib[0], dtype)
            limit = conformal.threshold(of_calib.probs, calib[1], of_calib.error)
            found["conformal_size"] = conformal.set_sizes(probs, limit).mean(-1)
            found["conformal_coverage"] = conformal.covered(probs, labels, limit).mean(-1)
    return found


def _of_ranks(
    probs: Tensor, labels: Tensor, for_ranks: Tensor, in_search: bool
) -> dict[str, Tensor]:
    """Compute the metrics that depend on the order of the confidences, which are sorted once."""
    confidence, correct = top_label(probs.double(), labels)
    ranked = Ranked(Ranking(for_ranks.double()), correct)
    area = aurc(ranked)
    found = {
        "debiased_ece": debiased_ece(ranked),
        "ks_error": ks_error(ranked),
        "aurc": area,
        "e_aurc": e_aurc(ranked, area),
    }
    if in_search:
        return found
    return found | {
        "sweep_ece": sweep_ece(ranked),
        "error_auroc": error_auroc(ranked),
        "smooth_ece": smooth_ece(on_grid(confidence, confidence - correct) / len(labels)),
    }


def _costly(
    logits: Tensor, probs: Tensor, labels: Tensor, found: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Compute the metrics that would slow a search of small trials, given NLL and Brier score."""
    of_nll, of_brier = (values.mean(-1) for values in cross_fitted(logits.double(), labels))
    correct = top_label(probs, labels)[1]
    entropies = entropy(probs)
    return {
        "nll_calibration": found["nll"] - of_nll,
        "nll_refinement": of_nll,
        "brier_calibration": found["brier"] - of_brier,
        "brier_refinement": of_brier,
        "classwise_debiased": classwise_debiased(probs, labels),
        "entropy_right": mean_where(entropies, correct),
        "entropy_wrong": mean_where(entropies, 1 - correct),
    }


def regime(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Compute the network check: does a network fit these samples, is it over-confident?"""
    probs = settled(logits, OUTPUTS).probs
    return _regime(logits, probs, labels, bin_table(probs, labels))


def _regime(logits: Tensor, probs: Tensor, labels: Tensor, table: BinTable) -> dict[str, Tensor]:
    confidence, correct = top_label(probs, labels)
    gaps = confidence - correct
    return {
        "accuracy": accuracy(probs, labels),
        "nll": nll_from_logits(logits, labels),
        "ece": ece_of(table, len(labels)),
        "confidence_gap": gaps.mean(-1),
        # The bootstrap standard error of a mean in closed form, without draws.
        "confidence_gap_se": gaps.std(-1, correction=0) / len(labels) ** 0.5,
    }


def under_corruption(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute ``names.CORRUPTION_METRICS`` of one classifier from its logits (N, C)."""
    probs, confidence, _ = settled(logits, OUTPUTS)
    found = {
        **_regime(logits, probs, labels, bin_table(probs, labels)),
        "aece": aece(probs, labels, confidence=confidence),
        "brier": brier(probs, labels),
    }
    return {name: float(found[name]) for name in CORRUPTION_METRICS}


def regime_in_parts(parts: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Compute ``regime`` of one classifier from logits (M, C) and labels of parts of a split."""
    # The number of samples, the sums of NLL, hits, gaps and squared gaps, and the gap of each bin.
    samples, sums, bins = 0, torch.zeros(4, dtype=torch.float64), torch.zeros(1)
    for logits, labels in parts:
        values = logits.double()
        probs = settled(values, OUTPUTS).probs
        confidence, correct = top_label(probs, labels)
        gaps = confidence - correct
        losses = nll_from_logits(values, labels) * len(labels)
        sums = sums + torch.stack([losses, correct.sum(), gaps.sum(), gaps.square().sum()])
        table = bin_table(probs, labels)
        bins = bins + table.count * table.gap
        samples += len(labels)
    nll, right, gap, square = (float(value) / samples for value in sums)
    return {
        "accuracy": right,
        "nll": nll,
        "ece": float(bins.abs().sum()) / samples,
        "confidence_gap": gap,
        "confidence_gap_se": (max(0.0, square - gap**2) / samples) ** 0.5,
    }


def compute_plugin_metrics(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Compute the metrics of plug-ins, which accept one classifier at a time."""
    found = {}
    each = logits.double().reshape(-1, *logits.shape[-2:])
    for metric in (METRICS[name] for name in METRICS):
        if metric.compute is not None:
            values = [float(metric.compute(one, labels)) for one in each]
            # A search assigns a diverged trial the worst value within the bounds of the record.
            if not all(metric.lower <= value <= metric.upper for value in values):
                bounds = f"[{metric.lower:g}, {metric.upper:g}]"
                raise ValueError(f"metric {metric.name!r} must lie in {bounds}, got {values}")
            numbers = torch.tensor(values, dtype=torch.float64)
            found[metric.name] = numbers.reshape(logits.shape[:-2])
    return found
