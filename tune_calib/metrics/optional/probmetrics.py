"""Proper calibration errors, as a plug-in: ``--plugin tune_calib.metrics.optional.probmetrics``.

E |p - E[y | p]| in the norms L1 and L2, without bins. The variational estimate of probmetrics is a
lower bound on average: E[y | p] is predicted by structured matrix scaling on the other four fifths
of the samples. Its boosted trees would start processes in a trial, and refuse missing classes.
"""

from functools import partial

from torch import Tensor

from tune_calib.metrics.optional import require_library
from tune_calib.spec.metrics import METRICS, Metric

require_library("probmetrics")


def proper_error(order: int, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-validated estimate in a norm, which may be slightly below 0."""
    from probmetrics.calibrators import SMSCalibrator
    from probmetrics.metrics import MetricsWithCalibration, ProperLpLoss
    from probmetrics.splitters import CVSplitter

    metrics = MetricsWithCalibration(
        ProperLpLoss(order), SMSCalibrator(), CVSplitter(5), random_state=0
    )
    values = metrics.compute_all_from_labels_logits(labels.cpu(), logits.cpu())
    return values[metrics.get_names()[0]]


for _order in (1, 2):
    METRICS.register(
        Metric(
            f"proper_l{_order}",
            f"Proper L{_order} error",
            "min",
            "score",
            lower=-2.0,
            upper=2.0,
            has_intervals=False,
            compute=partial(proper_error, _order),
        )
    )
