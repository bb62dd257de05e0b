"""Metrics against the authors' numbers, in float32 and float64."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot

from tests.parity_compare import close, compared, tensor
from tune_calib.metrics import calibration, ood, scoring
from tune_calib.metrics.binning import BinTable, bin_table, tabulate, top_label
from tune_calib.metrics.samples import Samples

Case = dict[str, Any]


def left_table(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> BinTable:
    """Bins [lo, hi), and one more for confidence 1, as in torchmetrics and BalCAL."""
    confidence, correct = top_label(probs, labels)
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype)
    index = torch.bucketize(confidence.contiguous(), edges, right=True) - 1
    return tabulate(confidence, correct, index, torch.cat([edges, edges[-1:]]))


def _ceil_table(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> BinTable:
    """Bins of the loop in Mukhoti's code, which rounds some edges up."""
    confidence, correct = top_label(probs, labels)
    index = torch.ceil(bins * confidence - 1).long().clamp(0, bins - 1)
    return tabulate(confidence, correct, index, torch.linspace(0, 1, bins + 1))


def _rank_table(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> BinTable:
    """Bins of PLP: N // B samples in each, and the rest (where N < B, all) in the last."""
    confidence, correct = top_label(probs, labels)
    ordered, order = confidence.sort(stable=True)
    ranks, size = torch.arange(len(labels)), len(labels) // bins
    index = (ranks // size).clamp(max=bins - 1) if size else torch.full_like(ranks, bins - 1)
    return tabulate(ordered, correct[order], index, torch.linspace(0, 1, bins + 1))


def _over_bins(
    name: str, probs: torch.Tensor, labels: torch.Tensor, bins: int, table: Any = bin_table
) -> torch.Tensor:
    samples = Samples(probs, labels)
    samples.table = table(probs, labels, bins)
    value: torch.Tensor = getattr(calibration, name)(samples)
    return value


def _of_samples(
    metric: Callable[[Samples], torch.Tensor], probs: torch.Tensor, labels: torch.Tensor, bins: int
) -> torch.Tensor:
    return metric(Samples(probs, labels, bins=bins))


def _sce_mdca(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> torch.Tensor:
    """Classwise ECE over all classes, also those above the largest label."""
    place = torch.bucketize(probs, torch.linspace(0, 1, bins + 1, dtype=probs.dtype))
    gaps = probs - one_hot(labels, probs.shape[1])
    sums = torch.zeros(bins + 2, probs.shape[1], dtype=probs.dtype).scatter_add(0, place, gaps)
    return sums[1:-1].abs().sum(0).mean() / len(labels)


def _oe_thulasidasan(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> torch.Tensor:
    table = bin_table(probs, labels, bins)
    return (table.count / len(labels) * table.confidence * table.gap.clamp(min=0)).sum(-1)


_ON_PROBS: dict[str, Callable[..., torch.Tensor]] = {
    "ece": partial(_of_samples, calibration.ece),
    "ece_loop": partial(_over_bins, "ece", table=_ceil_table),
    "ece_torchmetrics": partial(_over_bins, "ece", table=left_table),
    "ece_balcal": partial(_over_bins, "ece", table=left_table),
    "mce": partial(_over_bins, "mce", table=_ceil_table),
    "mce_torchmetrics": partial(_over_bins, "mce", table=left_table),
    "ace": partial(_over_bins, "ace"),
    "rmsce": partial(_over_bins, "rmsce"),
    "o_ece": partial(_over_bins, "o_ece"),
    "u_ece": partial(_over_bins, "u_ece"),
    "oe_thulasidasan": _oe_thulasidasan,
    "aece": partial(_of_samples, calibration.aece),
    "aece_equal_mass": partial(_over_bins, "ece", table=_rank_table),
    "cece": partial(_of_samples, calibration.cece),
    "sce_mdca": _sce_mdca,
}

_DTYPES = {"value_float32": torch.float32, "value_float64": torch.float64}


def _on_probs(metric: Callable[..., torch.Tensor], case: Case) -> None:
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        probs = tensor(case["inputs"]["logits"], _DTYPES[key]).softmax(-1)
        value = metric(probs, labels, bins=case["hyperparameters"]["n_bins"])
        close(value, case["expected"][key], case["tolerance"], key)


def _brier(normalisation: str, case: Case) -> None:
    per_class = len(case["inputs"]["logits"][0]) if normalisation == "mean" else 1
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        probs = tensor(case["inputs"]["logits"], _DTYPES[key]).softmax(-1)
        value = scoring.brier(Samples(probs, labels)) / per_class
        close(value, case["expected"][key], case["tolerance"], key)


def _nll(case: Case) -> None:
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        logits = tensor(case["inputs"]["logits"], _DTYPES[key])
        value = scoring.nll(Samples(logits.softmax(-1), labels, logits))
        close(value, case["expected"][key], case["tolerance"], key)


def _fpr95_tst(positive: torch.Tensor, negative: torch.Tensor) -> float:
    """Share of the negatives that score at least as high as the 5th percentile of the positives."""
    return float((negative.numpy() >= np.percentile(positive.numpy(), 5)).mean())


def _ood(case: Case) -> None:
    inside = tensor(case["inputs"]["logits_id"]).softmax(-1)
    foreign = tensor(case["inputs"]["logits_ood"]).softmax(-1)
    peak = inside.amax(-1), foreign.amax(-1)
    spread = ood.entropy(foreign), ood.entropy(inside)
    values = {
        "fpr95_interpolated": lambda: ood.separation(*peak)[2],
        "fpr95_percentile_tst": lambda: _fpr95_tst(*peak),
    }
    for key in compared(case):
        if key.startswith("threshold"):
            continue
        is_entropy = "entropy" in key
        ours = values.get(key, lambda e=is_entropy: ood.separation(*(spread if e else peak))[0])()
        close(ours, case["expected"][key], case["tolerance"], key)


COMPARERS: dict[str, Callable[[Case], None]] = {
    **{name: partial(_on_probs, metric) for name, metric in _ON_PROBS.items()},
    "brier_sum": partial(_brier, "sum"),
    "brier_mean": partial(_brier, "mean"),
    "nll": _nll,
    "auroc": _ood,
    "fpr95": _ood,
}
