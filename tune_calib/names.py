"""Every metric and reserved column name, with direction, unit and bounds: written once, here."""

from dataclasses import dataclass
from typing import Literal

INF = float("inf")
LARGE = 1e6  # stands for the bound of a metric that has none, where a finite value is needed


@dataclass(frozen=True)
class Metric:
    """A metric as tables and searches know it.

    Attributes:
        name: column name behind ``<split>/``.
        title: how it is printed.
        direction: whether a smaller or a larger value is better.
        unit: ``fraction`` (printed in percent), ``nats`` or ``score``.
        lower: smallest possible value.
        upper: largest possible value.
    """

    name: str
    title: str
    direction: Literal["min", "max"]
    unit: Literal["fraction", "nats", "score"]
    lower: float = 0.0
    upper: float = 1.0

    @property
    def worst(self) -> float:
        """A finite value that none is worse than, for a trial that diverged."""
        return self.lower if self.direction == "max" else min(self.upper, LARGE)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "Accuracy", "max", "fraction"),
        Metric("ece", "ECE", "min", "fraction"),
        Metric("aece", "AECE", "min", "fraction"),
        Metric("mce", "MCE", "min", "fraction"),
        Metric("ace", "ACE", "min", "fraction"),
        Metric("rmsce", "RMSCE", "min", "fraction"),
        Metric("cece", "Classwise ECE", "min", "fraction"),
        Metric("o_ece", "O-ECE", "min", "fraction"),
        Metric("u_ece", "U-ECE", "min", "fraction"),
        Metric("nll", "NLL", "min", "nats", upper=INF),
        Metric("brier", "Brier", "min", "score", upper=2.0),
        Metric("auroc", "AUROC", "max", "fraction"),
        Metric("fpr95", "FPR95", "min", "fraction"),
    )
}

OOD_METRICS = ("auroc", "fpr95")  # of telling a shifted set from the test split

SLOTS = ("data", "network", "head", "posthoc")

NOT_SETTINGS = ("seed", "method", "params")  # keys of a slot that name what is run

SEARCH_MANIFEST = "search.json"
SEARCH_OUTCOME = "outcome.json"
SEARCH_EVALUATED = "evaluated.json"  # that, when and how often a search read the test split
CRASHES = "crashes.txt"  # tracebacks of trials that crashed, in the folder of the results

WATCHED = ("accuracy", "nll", "ece")  # of select, reported by a network at every epoch

STATUSES = ("done", "diverged", "crashed", "stopped")


def column(split: str, metric: str) -> str:
    """Return the column of a metric on a split, e.g. ``test/ece``.

    Raises:
        KeyError: the metric is not in ``METRICS``.
    """
    return f"{split}/{METRICS[metric].name}"
