"""The objective of a search: metrics on ``select``, a guard on accuracy, and the choice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tune_calib.spec.metrics import METRICS, column, refuse_unsearchable
from tune_calib.spec.names import is_chance

Row = Mapping[str, Any]
"""A row of the table ``trials``."""


@dataclass(frozen=True)
class SuggestionResult:
    """The result of a suggestion over all its seeds."""

    status: Literal["done", "diverged", "crashed", "stopped"]  # the first that is not done
    values: tuple[float, ...] = ()  # mean of each metric over the seeds, if it is done
    drop: float = math.nan  # mean accuracy lost against the baseline of the same network seed
    epoch: int = 0  # at which it was stopped
    at_chance: bool = False  # a trial is flagged so, which excludes it from the choice


@dataclass(frozen=True)
class Objective:
    """Metrics on ``select``, and the accuracy that they may cost, as a fraction.

    The first metric decides between trials of which none beats the other in all.
    """

    metrics: tuple[str, ...]
    guard: float

    def __post_init__(self) -> None:
        """Refuse metrics that no search may optimise."""
        refuse_unsearchable(self.metrics)

    @property
    def directions(self) -> list[Literal["minimize", "maximize"]]:
        """Return the directions for Optuna."""
        return ["minimize" if METRICS[m].is_less_better else "maximize" for m in self.metrics]

    def summarise(
        self, rows: Sequence[Row | None], baseline: Mapping[int, float]
    ) -> SuggestionResult:
        """Summarise the trials of a suggestion, given the baseline's accuracy by network seed."""
        there = [row for row in rows if row is not None]
        if len(there) < len(rows):
            return SuggestionResult("crashed")
        for row in there:
            if row["status"] != "done":
                return SuggestionResult(row["status"], epoch=row["epoch"])
        values = tuple(_mean(row[column("select", name)] for row in there) for name in self.metrics)
        if not all(map(math.isfinite, values)):
            return SuggestionResult("diverged")
        drops = (baseline[r["network_seed"]] - r[column("select", "accuracy")] for r in there)
        at_chance = is_chance(row.get("flags") for row in there)
        return SuggestionResult("done", values, _mean(drops), at_chance=at_chance)

    def excess(self, result: SuggestionResult) -> float:
        """Return how far the drop is beyond the guard; at most 0 if it is within."""
        if result.at_chance:  # also where the baseline is at chance too
            return 1.0
        # Accuracies of n images are multiples of 1/n: the last bits must not decide.
        return result.drop - self.guard - 1e-9

    def losses(self, result: SuggestionResult) -> tuple[float, ...]:
        """Return the values with the sign that makes less better."""
        signs = (1 if METRICS[name].is_less_better else -1 for name in self.metrics)
        return tuple(sign * v for sign, v in zip(signs, result.values, strict=True))

    def within_guard(self, results: Mapping[int, SuggestionResult]) -> dict[int, SuggestionResult]:
        """Return the results that are done and keep the accuracy."""
        return {n: v for n, v in results.items() if v.status == "done" and self.excess(v) <= 0}

    def find_front(self, results: Mapping[int, SuggestionResult]) -> list[int]:
        """Return the numbers of the Pareto set within the guard, ordered by the first metric."""
        losses = {n: self.losses(v) for n, v in self.within_guard(results).items()}
        front = [n for n, own in losses.items() if not any(_beats(o, own) for o in losses.values())]
        # Only the earliest of equal ones stays, so that the choice never depends on an order.
        first = {losses[n]: n for n in sorted(front, reverse=True)}
        return sorted(first.values(), key=lambda n: (losses[n], n))

    def choose(self, results: Mapping[int, SuggestionResult]) -> int | None:
        """Choose the best first metric within the guard; ties go to the next metric, then order."""
        within = self.within_guard(results)
        return min(within, key=lambda n: (self.losses(within[n]), n)) if within else None

    def describe_rule(self) -> str:
        """Describe the rule of the choice."""
        best = METRICS[self.metrics[0]].title
        return f"best {best} on select with at most {100 * self.guard:g} points of accuracy lost"


def _beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def _mean(values: Any) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)
