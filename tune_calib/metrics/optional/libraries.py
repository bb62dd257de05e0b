"""Calibration errors of other libraries: ``--plugin tune_calib.metrics.optional.libraries``.

Each is a metric if its library is installed. The proper errors E |p - E[y | p]|, in the norms L1
and L2, need no bins. The estimate of probmetrics is a lower bound on average: E[y | p] is
predicted by structured matrix scaling on the other four fifths of the samples. Its boosted trees
would start processes in a trial, and refuse missing classes.
"""

from functools import partial
from importlib.util import find_spec

from torch import Tensor

from tune_calib.metrics.binning import top_label
from tune_calib.spec.metrics import METRICS, Metric


def proper_error(order: int, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-validated estimate in a norm, which may be slightly below 0."""
    from probmetrics.calibrators import SMSCalibrator
    from probmetrics.metrics import MetricsWithCalibration, ProperLpLoss
    from probmetrics.splitters import CVSplitter

    loss, folds = ProperLpLoss(order), CVSplitter(5)
    metrics = MetricsWithCalibration(loss, SMSCalibrator(), folds, random_state=0)
    values = metrics.compute_all_from_labels_logits(labels.cpu(), logits.cpu())
    error: Tensor = values[metrics.get_names()[0]]
    return error


def smooth_ece(logits: Tensor, labels: Tensor) -> float:
    """Return the smooth ECE of the confidence (Błasiok and Nakkiran, ICLR 2024)."""
    import relplot

    confidence, hits = top_label(logits.softmax(-1), labels)
    return float(relplot.smECE(confidence.cpu().numpy(), hits.cpu().numpy()))


def multiclass_ece(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the ECE with 15 bins [lo, hi), and one more for confidences of 1."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    error: Tensor = multiclass_calibration_error(logits.softmax(-1), labels, logits.shape[-1])
    return error


_error = partial(Metric, direction="min", unit="fraction", has_intervals=False)
_proper = partial(_error, unit="score", lower=-2.0, upper=2.0)
for _library, _metric in (
    ("probmetrics", _proper("proper_l1", "Proper L1 error", compute=partial(proper_error, 1))),
    ("probmetrics", _proper("proper_l2", "Proper L2 error", compute=partial(proper_error, 2))),
    ("relplot", _error("relplot_smooth_ece", "Smooth ECE (relplot)", compute=smooth_ece)),
    ("torchmetrics", _error("torchmetrics_ece", "ECE (TorchMetrics)", compute=multiclass_ece)),
):
    if find_spec(_library) is not None:
        METRICS.register(_metric)
