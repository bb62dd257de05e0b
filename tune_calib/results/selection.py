"""Compare the selected trial of a search with its baseline, in sentences."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tune_calib.results.manifests import ReadRecord, SearchOutcome
from tune_calib.spec.metrics import METRICS, format_value
from tune_calib.text import format_count

BASELINE_AT_CHANCE = (
    "the baseline itself is at chance: the guard excludes nothing, and a low calibration error at "
    "chance accuracy is meaningless"
)

EVALUATION = "evaluation"  # folder of the evaluation on test, in the folder of its search
BASELINE, DEFAULTS, CHOSEN = "baseline", "defaults", "chosen"  # its rungs

OPTIMISM = (
    "optimism: how much better a value was on select in the search than on test with fresh seeds; "
    "positive if select looked better than test, even if a larger value is better."
)

Row = Mapping[str, Any]
Values = Mapping[str, float]  # by metric


def find_lost(outcome: SearchOutcome, hashes: Collection[str]) -> set[str]:
    """Return the spec hashes of trials that have lost their rows; crashed ones had none."""
    lost: set[str] = set()
    for suggestion in outcome.suggestions:
        if suggestion.status != "crashed":
            lost.update(suggestion.specs)
    return lost.difference(hashes)


def describe_no_gain(metrics: Sequence[str], baseline: Values, choice: Values) -> list[str]:
    """Describe where the selected trial is no better than the baseline on ``select``."""
    lines = []
    for metric in _no_better(metrics, baseline, choice):
        title = METRICS[metric].title
        values = f"the choice has {format_value(metric, choice[metric])}, the baseline "
        values += format_value(metric, baseline[metric])
        if metric == metrics[0]:
            lines.append(
                f"no suggestion within the guard is better than the baseline in {title} on select "
                f"({values}): the choice is the best suggestion, but not a gain"
            )
        else:
            lines.append(f"the choice is no better than the baseline in {title} ({values})")
    return lines


def describe_no_gain_on_test(metrics: Sequence[str], baseline: Values, choice: Values) -> list[str]:
    """Describe where the selected trial is no better than the baseline on ``test``."""
    lines = []
    for metric in _no_better(metrics, baseline, choice):
        values = f"{format_value(metric, choice[metric])} against "
        values += format_value(metric, baseline[metric])
        title = METRICS[metric].title
        lines.append(f"on test the choice is no better than the baseline in {title}: {values}")
    return lines


def _no_better(metrics: Sequence[str], baseline: Values, choice: Values) -> Iterator[str]:
    for metric in metrics:
        low, high = baseline[metric], choice[metric]
        if not METRICS[metric].is_less_better:
            low, high = high, low
        if high >= low:
            yield metric


def describe_reads(reads: Sequence[ReadRecord]) -> str:
    """Describe how often, and with how many methods and seeds, the test split was evaluated."""
    counts = []
    for read in reads:
        count = format_count(read.seeds, "fresh seed")
        if read.methods:
            count = f"{format_count(len(read.methods), 'method')} and {count}"
        counts.append(count)
    if len(reads) == 1:
        return f"test was read once, with {counts[0]}"
    return (
        f"test was read {len(reads)} times: with {', then '.join(counts)}; each evaluation "
        "includes the previous one, whose numbers were known when it was requested"
    )
