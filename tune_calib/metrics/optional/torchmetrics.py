"""The ECE of TorchMetrics, as a plug-in: ``--plugin tune_calib.metrics.optional.torchmetrics``."""

from torch import Tensor

from tune_calib.metrics.optional import require_library
from tune_calib.spec.metrics import METRICS, Metric

require_library("torchmetrics")


def multiclass_ece(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the ECE with 15 bins [lo, hi), and one more for confidences of 1."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    probs = logits.softmax(-1)
    error: Tensor = multiclass_calibration_error(probs, labels, num_classes=probs.shape[-1])
    return error


METRICS.register(
    Metric(
        "torchmetrics_ece",
        "ECE (TorchMetrics)",
        "min",
        "fraction",
        has_intervals=False,
        compute=multiclass_ece,
    )
)
