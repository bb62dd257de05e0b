"""Every metric and reserved column name, with direction, unit and bounds: written once, here."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tune_calib.registry import Registry

# The analysis reads these names and loads no torch.
if TYPE_CHECKING:
    from torch import Tensor

INF = float("inf")
LARGE = 1e6  # stands for the bound of a metric that has none, where a finite value is needed


@dataclass(frozen=True)
class Metric:
    """A metric as tables and searches know it.

    Attributes:
        name: column name behind ``<split>/``.
        title: how it is printed.
        direction: whether a smaller or a larger value is better; None of what tells how a
            classifier is, and no value of which is the best: it is not ranked or searched for.
        unit: ``fraction`` (printed in percent), ``nats`` or ``score``.
        lower: smallest possible value.
        upper: largest possible value.
        is_of_trials: whether a row of a trial has it, on select and test; else published tables
            do, and a look at foreign images.
        is_in_searches: whether the trials of a search have it too: not what takes long, is not
            always defined, or compares what every classifier has alike.
        compute: of a plug-in's metric: from logits (N, C), float64, and labels (N,) to a number.
            The program's own are computed together (``metrics.summary``), their bins once.
    """

    name: str
    title: str
    direction: Literal["min", "max"] | None
    unit: Literal["fraction", "nats", "score"]
    lower: float = 0.0
    upper: float = 1.0
    is_of_trials: bool = True
    is_in_searches: bool = True
    compute: "Callable[[Tensor, Tensor], Tensor | float] | None" = None

    @property
    def is_less_better(self) -> bool:
        """Whether a smaller value is better.

        Raises:
            ValueError: no value is; who asks for a metric to rank by refuses it before.
        """
        if self.direction is None:
            raise ValueError(f"no value of {self.name} is better than another")
        return self.direction == "min"

    @property
    def is_searchable(self) -> bool:
        """Whether a search may optimise it."""
        return self.direction is not None and self.is_of_trials and self.is_in_searches

    @property
    def worst(self) -> float:
        """A finite value that none is worse than, for a trial that diverged."""
        return min(self.upper, LARGE) if self.is_less_better else self.lower


METRICS: Registry[Metric] = Registry("metric", "tune_calib.names", "Metric")
for _metric in (
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
    Metric("confidence_gap", "Confidence gap", None, "fraction", lower=-1.0),
    Metric("confidence_gap_se", "SE of the confidence gap", None, "fraction"),
    Metric("debiased_ece", "Debiased ECE", "min", "fraction"),
    Metric("ks_error", "KS error", "min", "fraction"),
    Metric("smooth_ece", "Smooth ECE", "min", "fraction", is_in_searches=False),
    Metric("sweep_ece", "Sweep ECE", "min", "fraction", is_in_searches=False),
    Metric("classwise_debiased", "Classwise debiased", "min", "fraction", is_in_searches=False),
    Metric("nll_calibration", "NLL, calibration", "min", "nats", -INF, INF, is_in_searches=False),
    Metric("nll_refinement", "NLL, refinement", "min", "nats", upper=INF, is_in_searches=False),
    Metric(
        "brier_calibration", "Brier, calibration", "min", "score", -2.0, 2.0, is_in_searches=False
    ),
    Metric("brier_refinement", "Brier, refinement", "min", "score", 0.0, 2.0, is_in_searches=False),
    Metric("aurc", "AURC", "min", "fraction"),
    Metric("e_aurc", "E-AURC", "min", "fraction"),
    Metric("error_auroc", "Misclassification AUROC", "max", "fraction", is_in_searches=False),
    Metric("entropy_right", "Entropy if right", None, "nats", upper=INF, is_in_searches=False),
    Metric("entropy_wrong", "Entropy if wrong", None, "nats", upper=INF, is_in_searches=False),
    Metric("conformal_size", "Set size at 90 %", "min", "score", upper=INF, is_in_searches=False),
    Metric("conformal_coverage", "Coverage at 90 %", None, "fraction", is_in_searches=False),
    Metric("auroc", "AUROC", "max", "fraction", is_of_trials=False),
    Metric("aupr_in", "AUPR-In", "max", "fraction", is_of_trials=False),
    Metric("aupr_out", "AUPR-Out", "max", "fraction", is_of_trials=False),
    Metric("fpr95", "FPR95", "min", "fraction", is_of_trials=False),
    Metric("auroc_entropy", "AUROC (entropy)", "max", "fraction", is_of_trials=False),
    Metric("aupr_in_entropy", "AUPR-In (entropy)", "max", "fraction", is_of_trials=False),
    Metric("aupr_out_entropy", "AUPR-Out (entropy)", "max", "fraction", is_of_trials=False),
    Metric("fpr95_entropy", "FPR95 (entropy)", "min", "fraction", is_of_trials=False),
):
    METRICS.register(_metric)


def metrics_of_trials() -> list[str]:
    """Metrics that a row of results may hold."""
    return [name for name in METRICS if METRICS[name].is_of_trials]


def rankable_metrics() -> list[str]:
    """Metrics of trials by which one trial is better than another."""
    return [name for name in metrics_of_trials() if METRICS[name].direction is not None]


def searchable_metrics() -> list[str]:
    """Metrics that a search may optimise."""
    return [name for name in METRICS if METRICS[name].is_searchable]


NO_BEST = "tells how a classifier is, and no value of it is the best; take ece, o_ece or u_ece"

# What is recorded of a network on each split, train among them: whether it fits its training
# images, and is over- or under-confident.
REGIME = ("accuracy", "nll", "ece", "confidence_gap", "confidence_gap_se")
BASE = "base"  # before the split, of the network that a head or a transform stands on

# Of telling foreign images from the test split, whose images are the positive class: by the largest
# probability, and by the entropy.
_BY_PROBABILITY = ("auroc", "aupr_in", "aupr_out", "fpr95")
OOD_METRICS = (*_BY_PROBABILITY, *(f"{name}_entropy" for name in _BY_PROBABILITY))

# Kinds of CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019) in its order, without its extra ones.
CORRUPTION_KINDS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
    "jpeg_compression",
)  # fmt: skip
NOT_GENERATED = ("frost",)  # of them: it needs artwork

# Of a corrupted test split: what is cheap, since there are dozens of them.
CORRUPTION_METRICS = ("accuracy", "ece", "aece", "nll", "brier", "confidence_gap")

SLOTS = ("data", "network", "head", "posthoc")

IMPORTED = "imported"
"""Data set and backbone of features and logits that others made."""

NOT_SETTINGS = ("seed", "method", "params", "plugin")  # keys of a slot that name what is run

SEARCH_MANIFEST = "search.json"
SEARCH_OUTCOME = "outcome.json"
SEARCH_EVALUATED = "evaluated.json"  # that, when and how often a search read the test split
CRASHES = "crashes.txt"  # tracebacks of trials that crashed, in the folder of the results

WATCHED = ("accuracy", "nll", "ece")  # of select, reported by a network at every epoch

STATUSES = ("done", "diverged", "crashed", "stopped")


@dataclass(frozen=True)
class Flag:
    """A warning beside the numbers of a trial that is done.

    Attributes:
        name: in the column ``flags`` of the trials, which joins several by a comma.
        sign: printed behind the name of a row.
        meaning: what it says, without a full stop.
    """

    name: str
    sign: str
    meaning: str


CHANCE = "chance"
HEAD_BELOW = "head_below_network"
"""Computed when results are read, so that those of earlier versions have it; not in their rows."""
BELOW = 0.05
"""Accuracy, a fraction, that a head may lose to its network: methods that are compared here differ
by less where they are trained to their end."""

FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            CHANCE,
            "†",
            "accuracy on select is not told from always naming its largest class (one-sided "
            "binomial test at 0.1 %), so that calibration says nothing, and it is never the best",
        ),
        Flag(
            "temperature_bound",
            "‡",
            "the temperature ran to an end of its range, or every sample of calib is right, so "
            "that no temperature is best; on other images it may do great harm",
        ),
        Flag(
            "temperature_harms",
            "§",
            "in cross-validation on calib the temperature gives a larger NLL than none (T = 1), by "
            "more than 1 % and than noise",
        ),
        Flag(
            "posthoc_harms",
            "¶",
            "in cross-validation on calib the post-hoc transform gives a larger NLL than none, by "
            "more than 1 % and than noise",
        ),
        Flag(
            "posthoc_unconverged",
            "#",
            "the fit of the post-hoc transform did not reach its optimum, or there is none, as "
            "where a class is missing from calib",
        ),
        Flag(
            HEAD_BELOW,
            "!",
            "accuracy on test is more than 5 points, and more than twice its standard error, below "
            "that of the network that the head stands on; the head may be trained too briefly, and "
            "its calibration is that of another classifier",
        ),
    )
}


def count_flags(cells: Iterable[object]) -> dict[Flag, int]:
    """How many cells of the column ``flags`` hold each flag; a cell may be absent or NaN."""
    found = Counter(name for cell in cells if isinstance(cell, str) for name in cell.split(","))
    return {flag: found[name] for name, flag in FLAGS.items() if found[name]}


def is_chance(cells: Iterable[object]) -> bool:
    """Whether a cell holds the flag of what may never be named the best."""
    return FLAGS[CHANCE] in count_flags(cells)


def signed(name: str, cells: Iterable[object]) -> str:
    """The name of a row with the signs of its flags behind it, e.g. ``tst †``."""
    found = "".join(flag.sign for flag in count_flags(cells))
    return f"{name} {found}" if found else name


def legend(cells: Iterable[object]) -> list[str]:
    """What stands under a table for each flag in it, e.g. ``† chance (3 trials): ...``."""
    return [
        f"{flag.sign} {flag.name} ({count} trial{'s' * (count > 1)}): {flag.meaning}"
        for flag, count in count_flags(cells).items()
    ]


def column(split: str, metric: str) -> str:
    """Return the column of a metric on a split, e.g. ``test/ece``.

    Raises:
        UserError: the metric is not in ``METRICS``.
    """
    return f"{split}/{METRICS[metric].name}"
