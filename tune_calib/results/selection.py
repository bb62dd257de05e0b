"""Compare the selected trial of a search with its baseline, in sentences."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tune_calib.results.manifests import ReadRecord, SearchOutcome
from tune_calib.spec.metrics import METRICS, format_value
from tune_calib.text import format_count

BASELINE_AT_CHANCE = (
    "the baseline itself is at chance: the guard excludes nothing, and a low calibration error at "
    "chance accuracy is meaningless"
)

EVALUATION = "evaluation"  # folder of the evaluation on test, in the folder of its search
PATH = "path"  # folder of the path from published to chosen settings, and name of its design
BASELINE, DEFAULTS, CHOSEN = "baseline", "defaults", "chosen"  # its rungs

OPTIMISM = (
    "optimism: how much better a value was on select in the search than on test with fresh seeds; "
    "positive if select looked better than test, even if a larger value is better."
)

Row = Mapping[str, Any]
Values = Mapping[str, float]  # by metric


def find_lost(outcome: SearchOutcome, hashes: Collection[str]) -> set[str]:
    """Return the spec hashes of trials that have lost their rows; crashed ones had none."""
    finished = [(*e.specs, *e.shorter) for e in outcome.suggestions if e.status != "crashed"]
    return set[str]().union(*finished).difference(hashes)


def describe_no_gain(
    metrics: Sequence[str], baseline: Values, choice: Values, split: str = "select"
) -> list[str]:
    lines = []
    for metric in metrics:
        low, high = baseline[metric], choice[metric]
        if not METRICS[metric].is_less_better:
            low, high = high, low
        if high >= low:
            lines.append(
                f"on {split} the choice is no better than the baseline in {METRICS[metric].title}: "
                f"{format_value(metric, choice[metric])} against "
                f"{format_value(metric, baseline[metric])}"
            )
    return lines


def describe_reads(reads: Sequence[ReadRecord]) -> str:
    """Describe how often, and with how many methods and seeds, the test split was evaluated."""
    counts = []
    for read in reads:
        count = format_count(read.seeds, "fresh seed")
        if read.methods:
            count = f"{format_count(len(read.methods), 'method')} and {count}"
        if read.points:
            count = f"{format_count(read.points, 'point')} of a path and {count}"
        counts.append(count)
    if len(reads) == 1:
        return f"test was read once, with {counts[0]}"
    if any(read.points for read in reads):
        return f"test was read {len(reads)} times: with {', then '.join(counts)}"
    return (
        f"test was read {len(reads)} times: with {', then '.join(counts)}; each evaluation "
        "includes the previous one, whose numbers were known when it was requested"
    )
