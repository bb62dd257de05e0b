"""The smooth ECE of relplot, as a plug-in: ``--plugin tune_calib.metrics.optional.relplot``."""

from torch import Tensor

from tune_calib.metrics.binning import top_label
from tune_calib.metrics.optional import require_library
from tune_calib.spec.metrics import METRICS, Metric

require_library("relplot")


def smooth_ece(logits: Tensor, labels: Tensor) -> float:
    """Return the smooth ECE of the confidence (Błasiok and Nakkiran, ICLR 2024)."""
    import relplot

    confidence, hits = top_label(logits.softmax(-1), labels)
    return float(relplot.smECE(confidence.cpu().numpy(), hits.cpu().numpy()))


METRICS.register(
    Metric(
        "relplot_smooth_ece",
        "Smooth ECE (relplot)",
        "min",
        "fraction",
        has_intervals=False,
        compute=smooth_ece,
    )
)
