"""The choice of a search against its baseline, and how optimistic the search was about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tune_calib.results.manifests import ReadRecord
from tune_calib.spec.metrics import METRICS, column, format_value

BASELINE_AT_CHANCE = (
    "the baseline itself is at chance: a guard against it keeps nothing out, and a low calibration "
    "error at chance accuracy is no result"
)

EVALUATION = "evaluation"
"""Folder of the look at the test split, below that of its search."""

BASELINE, DEFAULTS, CHOSEN = "baseline", "defaults", "chosen"
"""The rungs of that look."""

OPTIMISM = (
    "optimism: how much better the search saw it on select than it is on test under fresh seeds; "
    "positive: select looked better than test, also where a larger value is better."
)

Row = Mapping[str, Any]


def describe_no_gain(
    metrics: Sequence[str], baseline: Mapping[str, float], choice: Mapping[str, float]
) -> list[str]:
    """Where the choice of a search is no better than its baseline on ``select``, in words.

    Args:
        metrics: that were searched for; the first one decided.
        baseline: values by metric.
        choice: likewise.
    """
    lines = []
    for metric in _no_better(metrics, baseline, choice):
        values = f"the choice has {format_value(metric, choice[metric])}, the baseline "
        values += format_value(metric, baseline[metric])
        if metric == metrics[0]:
            lines.append(
                "no suggestion within the guard is better than the baseline in "
                f"{METRICS[metric].title} on select ({values}): the choice is the best of the "
                "suggestions, and no gain"
            )
        else:
            title = METRICS[metric].title
            lines.append(f"the choice is no better than the baseline in {title} ({values})")
    return lines


def describe_no_gain_on_test(
    metrics: Sequence[str], baseline: Mapping[str, float], choice: Mapping[str, float]
) -> list[str]:
    """As ``describe_no_gain``, of the look at the test split."""
    return [
        f"on test the choice is no better than the baseline in {METRICS[metric].title}: "
        f"{format_value(metric, choice[metric])} against {format_value(metric, baseline[metric])}"
        for metric in _no_better(metrics, baseline, choice)
    ]


def describe_reads(reads: Sequence[ReadRecord]) -> str:
    """How often, and in what order, the test split was read.

    Args:
        reads: of ``evaluated.json`` of a search.
    """
    if len(reads) == 1:
        return f"test was read once, under {_seeds(reads[0])}"
    then = ", then ".join(_seeds(read) for read in reads)
    return (
        f"test was read {len(reads)} times: under {then}; those of one look are among those of "
        "the next, and each was asked for with the numbers before in view"
    )


def _seeds(read: ReadRecord) -> str:
    return f"{read.seeds} fresh seed" + "s" * (read.seeds > 1)


def _no_better(
    metrics: Sequence[str], baseline: Mapping[str, float], choice: Mapping[str, float]
) -> list[str]:
    signs = {metric: 1 if METRICS[metric].is_less_better else -1 for metric in metrics}
    return [m for m in metrics if signs[m] * choice[m] >= signs[m] * baseline[m]]


@dataclass(frozen=True)
class Optimism:
    """One metric of one rung, as the search saw it and as it is.

    Attributes:
        label: of the rung.
        metric: a name of ``names.METRICS``.
        searched: mean on ``select`` over the trials of the search; all values are fractions where
            the metric is one.
        fresh: mean on ``select`` over the fresh seeds.
        test: on ``test``, one a fresh seed.
    """

    label: str
    metric: str
    searched: float
    fresh: float
    test: tuple[float, ...]

    @property
    def value(self) -> float:
        """What ``OPTIMISM`` says."""
        sign = 1 if METRICS[self.metric].is_less_better else -1
        return sign * (fmean(self.test) - self.searched)


def measure_optimism(
    rows: Sequence[Row], believed: Mapping[str, Sequence[Row]], metrics: Sequence[str]
) -> list[Optimism]:
    """Every metric of every rung that has numbers on both sides; accuracy is always among them.

    Args:
        rows: of the trials of the look at test.
        believed: rows of the search by rung.
        metrics: that were searched for.
    """
    found = []
    for label, own in believed.items():
        fresh = [row for row in rows if row["rung_label"] == label and row["status"] == "done"]
        before = [row for row in own if row["status"] == "done"]
        for name in dict.fromkeys([*metrics, "accuracy"]) if fresh and before else ():
            found.append(
                Optimism(
                    label,
                    name,
                    fmean(row[column("select", name)] for row in before),
                    fmean(row[column("select", name)] for row in fresh),
                    tuple(row[column("test", name)] for row in fresh),
                )
            )
    return found
