"""Metrics against the authors' numbers, in float32 and float64."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.parity_compare import close, compared, tensor
from tune_calib.metrics import calibration, ood, scoring
from tune_calib.metrics.binning import bin_table

Case = dict[str, Any]


def _over_bins(
    name: str, probs: torch.Tensor, labels: torch.Tensor, bins: int, convention: Any = "right"
) -> torch.Tensor:
    table = bin_table(probs, labels, bins, convention)
    return calibration.errors_of(table, len(labels))[name]


def _oe_thulasidasan(probs: torch.Tensor, labels: torch.Tensor, bins: int) -> torch.Tensor:
    table = bin_table(probs, labels, bins)
    return (table.count / len(labels) * table.confidence * table.gap.clamp(min=0)).sum(-1)


_ON_PROBS: dict[str, Callable[..., torch.Tensor]] = {
    "ece": calibration.ece,
    "ece_loop": partial(_over_bins, "ece", convention="ceil"),
    "ece_torchmetrics": partial(_over_bins, "ece", convention="left"),
    "ece_balcal": partial(_over_bins, "ece", convention="left"),
    "mce": partial(_over_bins, "mce", convention="ceil"),
    "mce_torchmetrics": partial(_over_bins, "mce", convention="left"),
    "ace": partial(_over_bins, "ace"),
    "rmsce": partial(_over_bins, "rmsce"),
    "o_ece": partial(_over_bins, "o_ece"),
    "u_ece": partial(_over_bins, "u_ece"),
    "oe_thulasidasan": _oe_thulasidasan,
    "aece": calibration.aece,
    "aece_equal_mass": partial(calibration.aece, equal_mass=True),
    "cece": calibration.cece,
    "sce_mdca": partial(calibration.cece, all_classes=True),
}

_DTYPES = {"value_float32": torch.float32, "value_float64": torch.float64}


def _on_probs(metric: Callable[..., torch.Tensor], case: Case) -> None:
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        probs = tensor(case["inputs"]["logits"], _DTYPES[key]).softmax(-1)
        value = metric(probs, labels, bins=case["hyperparameters"]["n_bins"])
        close(value, case["expected"][key], case["tolerance"], key)


def _brier(normalisation: str, case: Case) -> None:
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        probs = tensor(case["inputs"]["logits"], _DTYPES[key]).softmax(-1)
        value = scoring.brier(probs, labels, normalisation)  # type: ignore[arg-type]
        close(value, case["expected"][key], case["tolerance"], key)


def _nll(case: Case) -> None:
    labels = torch.tensor(case["inputs"]["targets"])
    for key in compared(case):
        value = scoring.nll_from_logits(tensor(case["inputs"]["logits"], _DTYPES[key]), labels)
        close(value, case["expected"][key], case["tolerance"], key)


def _ood(case: Case) -> None:
    known = tensor(case["inputs"]["logits_id"]).softmax(-1)
    foreign = tensor(case["inputs"]["logits_ood"]).softmax(-1)
    peak = ood.max_prob(known), ood.max_prob(foreign)
    spread = ood.entropy(foreign), ood.entropy(known)
    values = {
        "fpr95_interpolated": lambda: ood.fpr95(*peak),
        "fpr95_percentile_tst": lambda: ood.fpr95(*peak, method="percentile"),
    }
    for key in compared(case):
        if key.startswith("threshold"):
            continue
        is_entropy = "entropy" in key
        ours = values.get(key, lambda e=is_entropy: ood.auroc(*(spread if e else peak)))()
        close(ours, case["expected"][key], case["tolerance"], key)


COMPARERS: dict[str, Callable[[Case], None]] = {
    **{name: partial(_on_probs, metric) for name, metric in _ON_PROBS.items()},
    "brier_sum": partial(_brier, "sum"),
    "brier_mean": partial(_brier, "mean"),
    "nll": _nll,
    "auroc": _ood,
    "fpr95": _ood,
}
