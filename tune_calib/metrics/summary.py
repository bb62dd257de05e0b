"""All metrics of ``spec.metrics.METRICS`` that are computed on one labelled split."""

import importlib
from collections.abc import Iterable

import torch
from torch import Tensor

from tune_calib.metrics.samples import CalibSplit, Samples
from tune_calib.metrics.scoring import gaps, hits, nll
from tune_calib.metrics.ties import OUTPUTS, settled
from tune_calib.spec.metrics import CORRUPTION_METRICS, METRICS

_NETWORK_CHECK = ("accuracy", "nll", "ece", "confidence_gap", "confidence_gap_se")


def evaluate(
    logits: Tensor,
    labels: Tensor,
    calib: tuple[Tensor, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Compute every metric of a head batch on one split, with the bins counted once.

    Args:
        logits: (..., N, C), unnormalised (or log-probabilities), finite.
        labels: (N,), int64.
        calib: logits and labels of ``calib``; without them, conformal metrics are left out.
        dtype: type in which the logits were rounded (``ties.settled``), their own by default.

    Returns:
        A tensor (...) for each name: fractions, NLL in nats, Brier score summed over classes. NaN
        where a metric is not defined.
    """
    calib_split = None if calib is None else collect_calib(*calib, dtype)
    samples = collect_samples(logits, labels, calib_split, dtype)
    return measure_samples(samples, computed_metrics(has_calib=calib is not None))


def collect_calib(logits: Tensor, labels: Tensor, dtype: torch.dtype | None = None) -> CalibSplit:
    """Return the predictions for ``calib`` that calibrate conformal sets, as for ``evaluate``."""
    probs, _, error = settled(logits, dtype)
    return CalibSplit(probs, labels, error)


def collect_samples(
    logits: Tensor,
    labels: Tensor,
    calib: CalibSplit | None = None,
    dtype: torch.dtype | None = None,
) -> Samples:
    """Return the samples of a split, whose metrics and bins share their probabilities."""
    probs, confidence, _ = settled(logits, dtype)
    return Samples(probs, labels, logits=logits, confidence=confidence, calib=calib)


def measure_samples(samples: Samples, names: Iterable[str]) -> dict[str, Tensor]:
    """Compute built-in metrics by name, and those of plug-ins."""
    return measure(samples, names) | compute_plugin_metrics(samples.logits, samples.labels)


def computed_metrics(
    in_search: bool = False, has_calib: bool = True, in_draw: bool = False
) -> list[str]:
    """Return the built-in metrics of a labelled split; searches and draws have fewer."""
    records = [metric for metric in METRICS.values() if metric.module]
    if in_search or in_draw:
        records = [record for record in records if record.is_in_searches or record.needs_calib]
    if in_draw:
        records = [record for record in records if record.is_in_draws]
    return [record.name for record in records if has_calib or not record.needs_calib]


def measure(samples: Samples, names: Iterable[str]) -> dict[str, Tensor]:
    """Compute metrics by name with the functions that their records refer to."""
    values = {}
    for name in names:
        module = importlib.import_module(f"tune_calib.metrics.{METRICS[name].module}")
        values[name] = samples.value(getattr(module, name))
    return values


def measure_network_check(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute the network check of logits (N, C); an empty dict if a logit is not finite."""
    if not bool(logits.isfinite().all()):
        return {}
    logits = logits.double()
    metrics = measure(Samples(settled(logits, OUTPUTS).probs, labels, logits), _NETWORK_CHECK)
    return {name: float(value) for name, value in metrics.items()}


def under_corruption(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute ``spec.metrics.CORRUPTION_METRICS`` of one classifier from its logits (N, C)."""
    metrics = measure(collect_samples(logits, labels, dtype=OUTPUTS), CORRUPTION_METRICS)
    return {name: float(value) for name, value in metrics.items()}


def measure_network_check_in_parts(parts: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Compute the network check of one classifier from logits (M, C) and labels, in parts."""
    # The number of samples, the sums of NLL, hits, gaps and squared gaps, and the gap of each bin.
    total, sums, bins = 0, torch.zeros(4, dtype=torch.float64), torch.zeros(1)
    for logits, labels in parts:
        values = logits.double()
        samples = Samples(settled(values, OUTPUTS).probs, labels, values)
        loss, gap = nll(samples) * samples.total, gaps(samples)
        sums = sums + torch.stack([loss, hits(samples).sum(), gap.sum(), gap.square().sum()])
        bins = bins + samples.table.count * samples.table.gap
        total += samples.total
    mean_loss, right, mean_gap, square = (float(value) / total for value in sums)
    return {
        "accuracy": right,
        "nll": mean_loss,
        "ece": float(bins.abs().sum()) / total,
        "confidence_gap": mean_gap,
        "confidence_gap_se": (max(0.0, square - mean_gap**2) / total) ** 0.5,
    }


def compute_plugin_metrics(
    logits: Tensor, labels: Tensor, only_drawn: bool = False
) -> dict[str, Tensor]:
    """Compute the metrics of plug-ins, or those with intervals, one classifier at a time."""
    computed = {}
    classifiers = logits.double().reshape(-1, *logits.shape[-2:])
    for metric in METRICS.values():
        if metric.compute is None or (only_drawn and not metric.has_intervals):
            continue
        values = [float(metric.compute(classifier, labels)) for classifier in classifiers]
        # A search assigns a diverged trial the worst value within the bounds of the record.
        if not all(metric.lower <= value <= metric.upper for value in values):
            bounds = f"[{metric.lower:g}, {metric.upper:g}]"
            raise ValueError(f"metric {metric.name!r} must lie in {bounds}, got {values}")
        numbers = torch.tensor(values, dtype=torch.float64)
        computed[metric.name] = numbers.reshape(logits.shape[:-2])
    return computed
