"""What a search optimises: metrics on ``select`` with a guard on accuracy, and which trial wins."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tune_calib.spec.metrics import METRICS, column, refuse_unsearchable
from tune_calib.spec.names import is_chance

Row = Mapping[str, Any]
"""A row of the table ``trials``."""


@dataclass(frozen=True)
class Standing:
    """The result of a suggestion over all its seeds.

    Attributes:
        status: ``done``, or the worst status among its trials.
        values: mean of each metric over the seeds; empty unless it is done.
        drop: mean accuracy that it lost against the baseline of the same network seed.
        epoch: at which it was stopped.
        at_chance: a trial of it is flagged so, and it can not be chosen.
    """

    status: Literal["done", "diverged", "crashed", "stopped"]
    values: tuple[float, ...] = ()
    drop: float = math.nan
    epoch: int = 0
    at_chance: bool = False


@dataclass(frozen=True)
class Objective:
    """Metrics of ``names.METRICS`` on ``select``, and the accuracy that they may cost.

    Attributes:
        metrics: the first one decides between trials of which none beats the other in all.
        guard: largest drop of accuracy on ``select`` against the baseline, as a fraction.
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

    def standing(self, rows: Sequence[Row | None], baseline: Mapping[int, float]) -> Standing:
        """Sum the trials of one suggestion up.

        Args:
            rows: of each seed; None where there is none.
            baseline: accuracy on ``select`` by network seed.
        """
        there = [row for row in rows if row is not None]
        if len(there) < len(rows):
            return Standing("crashed")
        for row in there:
            if row["status"] != "done":
                return Standing(row["status"], epoch=row["epoch"])
        values = tuple(_mean(row[column("select", name)] for row in there) for name in self.metrics)
        if not all(map(math.isfinite, values)):
            return Standing("diverged")
        drops = (baseline[r["network_seed"]] - r[column("select", "accuracy")] for r in there)
        at_chance = is_chance(row.get("flags") for row in there)
        return Standing("done", values, _mean(drops), at_chance=at_chance)

    def excess(self, standing: Standing) -> float:
        """Return how far the drop is beyond the guard; at most 0 if it is within.

        At chance it is beyond any guard, also where the baseline is at chance too.
        """
        if standing.at_chance:
            return 1.0
        # Accuracies of n images are multiples of 1/n: the last bits must not decide.
        return standing.drop - self.guard - 1e-9

    def losses(self, standing: Standing) -> tuple[float, ...]:
        """Return the values with the sign that makes less better."""
        signs = (1 if METRICS[name].is_less_better else -1 for name in self.metrics)
        return tuple(sign * v for sign, v in zip(signs, standing.values, strict=True))

    def within_guard(self, standings: Mapping[int, Standing]) -> dict[int, Standing]:
        """Return the results that are done and keep the accuracy."""
        return {n: v for n, v in standings.items() if v.status == "done" and self.excess(v) <= 0}

    def pareto(self, standings: Mapping[int, Standing]) -> list[int]:
        """Return the numbers of the Pareto set within the guard, best first metric first."""
        losses = {n: self.losses(v) for n, v in self.within_guard(standings).items()}
        front = [n for n, own in losses.items() if not any(_beats(o, own) for o in losses.values())]
        # Of equal ones the earlier stays alone, so that the choice never depends on an order.
        first = {losses[n]: n for n in sorted(front, reverse=True)}
        return sorted(first.values(), key=lambda n: (losses[n], n))

    def chosen(self, standings: Mapping[int, Standing]) -> int | None:
        """Choose the best first metric within the guard; ties go to the next metric, then order."""
        within = self.within_guard(standings)
        return min(within, key=lambda n: (self.losses(within[n]), n)) if within else None

    def rule(self) -> str:
        """Describe the rule."""
        best = METRICS[self.metrics[0]].title
        return f"best {best} on select with at most {100 * self.guard:g} points of accuracy lost"


def _beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def _mean(values: Any) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)
