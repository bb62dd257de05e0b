"""Records of metrics: direction, unit and bounds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tune_calib.errors import UserError
from tune_calib.registry import Registry

INF = float("inf")
LARGE = 1e6  # bound of an unbounded metric, where a finite value is needed


@dataclass(frozen=True)
class Metric:
    """A metric as tables and searches know it.

    Attributes:
        name: column name after ``<split>/``.
        title: printed name.
        direction: whether a smaller or a larger value is better; None for a description of the
            classifier without a best value, which is neither ranked nor searched.
        unit: ``fraction`` (printed in percent), ``nats`` or ``score``.
        lower: smallest possible value.
        upper: largest possible value.
        is_of_trials: whether rows of trials have it, on select and test; otherwise only published
            tables and evaluations on foreign images do.
        is_in_searches: whether the trials of a search have it too; not if it is slow, not always
            defined, or much the same for every classifier.
        is_in_draws: whether trials on one of hundreds of draws of the splits have it, if those of
            searches do; not if it takes much of the time of a draw.
        is_distance: whether chance can only increase it, even for a perfectly calibrated
            classifier, which determines its intervals (``metrics.bootstrap``).
        needs_calib: whether it is defined only with logits of ``calib``.
        has_intervals: whether the bootstrap draws it; not if a plug-in's metric takes long.
        chance: value of a classifier whose confidence tells nothing, if it is the same on all
            data; no value that is not better is marked as the best.
        module: module of ``tune_calib.metrics`` with the function of a metric of ours, which has
            its name and maps ``samples.Samples`` to a number for each classifier or draw; empty for
            metrics of foreign images (``metrics.ood``).
        compute: function of a plug-in's metric that maps logits (N, C), float64, and labels (N,) to
            a number.
    """

    name: str
    title: str
    direction: Literal["min", "max"] | None
    unit: Literal["fraction", "nats", "score"]
    lower: float = 0.0
    upper: float = 1.0
    is_of_trials: bool = True
    is_in_searches: bool = True
    is_in_draws: bool = True
    is_distance: bool = False
    needs_calib: bool = False
    has_intervals: bool = True
    chance: float | None = None
    module: str = ""
    compute: Callable[..., Any] | None = None

    @property
    def is_less_better(self) -> bool:
        if self.direction is None:
            raise ValueError(f"no value of {self.name} is better than another")
        return self.direction == "min"

    @property
    def is_searchable(self) -> bool:
        return self.direction is not None and self.is_of_trials and self.is_in_searches

    @property
    def worst(self) -> float:
        """Return the worst finite value, for a trial that diverged."""
        return min(self.upper, LARGE) if self.is_less_better else self.lower

    @property
    def scale(self) -> int:
        """Return the factor for printing: 100 for a fraction, else 1."""
        return 100 if self.unit == "fraction" else 1

    @property
    def digits(self) -> int:
        return 2 if self.unit == "fraction" else 3

    @property
    def head(self) -> str:
        unit = {"fraction": " (%)", "nats": " (nats)", "score": ""}[self.unit]
        arrow = {"min": " ↓", "max": " ↑", None: ""}[self.direction]
        return f"{self.title}{unit}{arrow}"

    def format(self, value: float, signed: bool = False) -> str:
        """Format a value as printed: fractions in percent; ``-`` for NaN."""
        return format_number(value, self.scale, self.digits, signed)


def format_number(value: float, scale: float, digits: int, signed: bool = False) -> str:
    """Format a number with a fixed number of decimals; ``-`` for NaN."""
    if math.isnan(value):
        return "-"
    # "z" prints a change that rounds to zero as 0.00, not as -0.00.
    sign = "+z" if signed else "z"
    return f"{scale * value:{sign}.{digits}f}"


METRICS: Registry[Metric] = Registry("metric", "tune_calib.spec.metrics", Metric)
_distance = partial(
    Metric, direction="min", unit="fraction", is_distance=True, module="calibration"
)
_final = partial(Metric, is_in_searches=False)
_rare = partial(Metric, is_in_draws=False)
_conformal = partial(_final, module="conformal", needs_calib=True)
for _metric in (
    Metric("accuracy", "Accuracy", "max", "fraction", module="scoring"),
    _distance("ece", "ECE"),
    _distance("aece", "AECE"),
    _distance("mce", "MCE"),
    _distance("ace", "ACE"),
    _distance("rmsce", "RMSCE"),
    _distance("cece", "Classwise ECE"),
    _distance("o_ece", "O-ECE"),
    _distance("u_ece", "U-ECE"),
    Metric("nll", "NLL", "min", "nats", upper=INF, module="scoring"),
    Metric("brier", "Brier", "min", "score", upper=2.0, module="scoring"),
    Metric("confidence_gap", "Confidence gap", None, "fraction", lower=-1.0, module="scoring"),
    Metric("confidence_gap_se", "SE of the confidence gap", None, "fraction", module="scoring"),
    _final("sharpness", "Sharpness", None, "score", upper=0.25, module="scoring"),
    _distance("debiased_ece", "Debiased ECE (L2)"),
    _distance("ks_error", "KS error"),
    _distance("smooth_ece", "Smooth ECE", is_in_searches=False),
    _distance("sweep_ece", "Sweep ECE", is_in_searches=False),
    _distance("classwise_debiased", "Classwise debiased (L2)", is_in_searches=False),
    _final("nll_calibration", "NLL, calibration", "min", "nats", -INF, INF, module="scoring"),
    # It takes half of the time of a draw.
    _rare("nll_refinement", "NLL, refinement", "min", "nats", upper=INF, module="scoring"),
    _final("brier_calibration", "Brier, calibration", "min", "score", -2.0, 2.0, module="scoring"),
    _final("brier_refinement", "Brier, refinement", "min", "score", upper=2.0, module="scoring"),
    Metric("aurc", "AURC", "min", "fraction", module="selective"),
    Metric("e_aurc", "E-AURC", "min", "fraction", module="selective"),
    Metric("augrc", "AUGRC", "min", "fraction", upper=0.5, module="selective"),
    Metric("coverage_at_risk", "Coverage at 5 % risk", "max", "fraction", module="selective"),
    _final(
        "error_auroc", "Misclassification AUROC", "max", "fraction", chance=0.5, module="selective"
    ),
    _final("entropy_right", "Entropy if right", None, "nats", upper=INF, module="selective"),
    _final("entropy_wrong", "Entropy if wrong", None, "nats", upper=INF, module="selective"),
    _conformal("conformal_size", "Set size at 90 %", "min", "score", upper=INF),
    _conformal("conformal_coverage", "Coverage at 90 %", None, "fraction"),
    Metric("auroc", "AUROC", "max", "fraction", is_of_trials=False, chance=0.5),
    Metric("aupr_in", "AUPR-In", "max", "fraction", is_of_trials=False),
    Metric("aupr_out", "AUPR-Out", "max", "fraction", is_of_trials=False),
    Metric("fpr95", "FPR95", "min", "fraction", is_of_trials=False, chance=0.95),
    Metric("auroc_entropy", "AUROC (entropy)", "max", "fraction", is_of_trials=False, chance=0.5),
    Metric("aupr_in_entropy", "AUPR-In (entropy)", "max", "fraction", is_of_trials=False),
    Metric("aupr_out_entropy", "AUPR-Out (entropy)", "max", "fraction", is_of_trials=False),
    Metric("fpr95_entropy", "FPR95 (entropy)", "min", "fraction", is_of_trials=False, chance=0.95),
):
    METRICS.register(_metric)


def metrics_of_trials() -> list[str]:
    return [name for name in METRICS if METRICS[name].is_of_trials]


def rankable_metrics() -> list[str]:
    return [name for name in metrics_of_trials() if METRICS[name].direction is not None]


def searchable_metrics() -> list[str]:
    return [name for name in METRICS if METRICS[name].is_searchable]


NO_BEST = "describes a classifier and has no best value; use ece, o_ece or u_ece"


def refuse_unsearchable(metrics: Sequence[str]) -> None:
    for name in metrics:
        if METRICS[name].direction is None:
            why = NO_BEST
        elif not METRICS[name].is_of_trials:
            why = "needs shifted images; a search sees only select"
        elif not METRICS[name].is_in_searches:
            why = f"is not computed in searches; use one of {', '.join(searchable_metrics())}"
        elif metrics.count(name) > 1:
            why = "is given twice; give it once"
        else:
            continue
        raise UserError(f"{name} {why}", setting="metric")


BASE = "base"  # before the split, for the network below a head or transform

# For the detection of foreign images among those of the test split, which are the positive class:
# by the largest probability and by the entropy.
_BY_PROBABILITY = ("auroc", "aupr_in", "aupr_out", "fpr95")
OOD_METRICS = (*_BY_PROBABILITY, *(f"{name}_entropy" for name in _BY_PROBABILITY))

# For corrupted test splits: only cheap metrics, since there are dozens of such splits.
CORRUPTION_METRICS = ("accuracy", "ece", "aece", "nll", "brier", "confidence_gap")


def column(split: str, metric: str) -> str:
    """Return the column of a metric on a split, e.g. ``test/ece``."""
    return f"{split}/{METRICS[metric].name}"


def format_value(metric: str, value: float) -> str:
    """Format a value for a sentence, e.g. ``2.13 %``."""
    record = METRICS[metric]
    unit = " %" if record.unit == "fraction" else ""
    return f"{record.format(value)}{unit}"


# Without a full stop, like the captions that end with it.
AT_VALUE = (
    "Where the interval of a distance ends at the value itself, the true distance is probably "
    "smaller: chance raises the value, and the interval is extended only as far as to hold it"
)
