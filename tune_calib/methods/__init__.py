"""Methods, one per file. Files that begin with an underscore are shared by several methods."""

from tune_calib.methods._base import (
    Batch,
    EpochFeedback,
    EpochStatistics,
    HeadContext,
    HeadMethod,
    NetworkContext,
    NetworkMethod,
    PostHocMethod,
    Step,
)
from tune_calib.methods._functional import label_log_probs
from tune_calib.methods._posthoc import Fit, FittedAlone

__all__ = [
    "Batch",
    "EpochFeedback",
    "EpochStatistics",
    "Fit",
    "FittedAlone",
    "HeadContext",
    "HeadMethod",
    "NetworkContext",
    "NetworkMethod",
    "PostHocMethod",
    "Step",
    "label_log_probs",
]
