"""What must be said of the choice of a search: its driver and its page say the same."""

from collections.abc import Mapping, Sequence

from tune_calib.manifests import Look
from tune_calib.names import METRICS

BASELINE_AT_CHANCE = (
    "the baseline itself is at chance: a guard against it keeps nothing out, and a low calibration "
    "error at chance accuracy is no result"
)


def of_choice(
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
        values = f"the choice has {shown(metric, choice[metric])}, the baseline "
        values += shown(metric, baseline[metric])
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


def of_test(
    metrics: Sequence[str], baseline: Mapping[str, float], choice: Mapping[str, float]
) -> list[str]:
    """As ``of_choice``, of the look at the test split."""
    return [
        f"on test the choice is no better than the baseline in {METRICS[metric].title}: "
        f"{shown(metric, choice[metric])} against {shown(metric, baseline[metric])}"
        for metric in _no_better(metrics, baseline, choice)
    ]


def of_reads(reads: Sequence[Look]) -> str:
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


def shown(metric: str, value: float) -> str:
    """A value in a sentence: fractions in percent."""
    is_fraction = METRICS[metric].unit == "fraction"
    return f"{100 * value:.2f} %" if is_fraction else f"{value:.3f}"


def _seeds(read: Look) -> str:
    return f"{read.seeds} fresh seed" + "s" * (read.seeds > 1)


def _no_better(
    metrics: Sequence[str], baseline: Mapping[str, float], choice: Mapping[str, float]
) -> list[str]:
    signs = {metric: 1 if METRICS[metric].is_less_better else -1 for metric in metrics}
    return [m for m in metrics if signs[m] * choice[m] >= signs[m] * baseline[m]]
