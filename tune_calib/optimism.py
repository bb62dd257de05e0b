"""How much better a search saw its choice on ``select`` than it is on ``test``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tune_calib.names import METRICS, column

EVALUATION = "evaluation"
"""Folder of the look at the test split, below that of its search."""

BASELINE, DEFAULTS, CHOSEN = "baseline", "defaults", "chosen"
"""The rungs of that look."""

OPTIMISM = (
    "optimism: how much better the search saw it on select than it is on test under fresh seeds; "
    "positive: select looked better than test, also where a larger value is better."
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
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
    def optimism(self) -> float:
        """What ``OPTIMISM`` says."""
        sign = 1 if METRICS[self.metric].is_less_better else -1
        return sign * (fmean(self.test) - self.searched)


def seen(
    rows: Sequence[Row], believed: Mapping[str, Sequence[Row]], metrics: Sequence[str]
) -> list[Seen]:
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
                Seen(
                    label,
                    name,
                    fmean(row[column("select", name)] for row in before),
                    fmean(row[column("select", name)] for row in fresh),
                    tuple(row[column("test", name)] for row in fresh),
                )
            )
    return found
