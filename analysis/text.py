"""Cells of tables: a text, and the printed number for ranking and sorting."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import SupportsFloat

from tune_calib.spec.metrics import METRICS, Metric, format_value
from tune_calib.spec.names import ENDED_EARLY, STATUSES

# Marks of the best (1) and the second (2) cell of a column, by format.
MARKS = {
    "plain": {0: "{}", 1: "{} *", 2: "{} °"},
    "markdown": {0: "{}", 1: "**{}**", 2: "<u>{}</u>"},
    "latex": {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"},
    "html": {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"},
}
LEAST_P = 0.0001  # a smaller p is printed as "< 0.0001"


def rounded(metric: str | Metric, value: float) -> float:
    """Return a value rounded as printed, so that values printed alike share a rank."""
    # Python rounds a float as it formats it, unlike NumPy. Adding 0.0 turns -0.0 into 0.0.
    record = METRICS[metric] if isinstance(metric, str) else metric
    return round(float(record.scale * value), record.digits) + 0.0


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    value: float | None = None  # rounded as printed; None if the text is not a number
    rank: int = 0  # 1 for the best of its column, 2 for the second

    @classmethod
    def of(cls, value: object) -> "Cell":
        """Return the cell of a text or a plain number; ``-`` for None and NaN."""
        if isinstance(value, Cell):
            return value
        if isinstance(value, str):
            return cls(value)
        # None, NaN and their counterparts in pandas.
        if str(value) in ("None", "nan", "NaT", "<NA>"):
            return NOTHING
        # Includes NumPy's numbers, but not booleans.
        if isinstance(value, bool) or not isinstance(value, SupportsFloat):
            return cls(str(value))
        return cls(str(value), float(value))

    @classmethod
    def number(
        cls, metric: str | Metric, value: float, sd: float = math.nan, signed: bool = False
    ) -> "Cell":
        """Return the cell of a value, with its spread unless that is NaN."""
        if math.isnan(value):
            return NOTHING
        record = METRICS[metric] if isinstance(metric, str) else metric
        text = record.format(value, signed)
        if not math.isnan(sd):
            text += f" ± {record.format(sd)}"
        return cls(text, rounded(record, value))

    @classmethod
    def unit(cls, metric: str, value: float, sd: float = math.nan) -> "Cell":
        """Return the cell of a value and its spread with units, for rows of several metrics."""
        if math.isnan(value):
            return NOTHING
        text = format_value(metric, value)
        if not math.isnan(sd):
            text += f" ± {format_value(metric, sd)}"
        return cls(text, rounded(metric, value))

    @classmethod
    def span(cls, metric: str | Metric, low: float, high: float, signed: bool = False) -> "Cell":
        """Return the cell of an interval, sorted by its lower end; ``-`` for NaN."""
        if math.isnan(low):
            return NOTHING
        record = METRICS[metric] if isinstance(metric, str) else metric
        text = f"{record.format(low, signed)} to {record.format(high, signed)}"
        return cls(text, rounded(record, low))

    @classmethod
    def formatted(cls, value: float, form: str) -> "Cell":
        """Return the cell of a number in a format such as ``.2f``; ``-`` for NaN."""
        if math.isnan(value):
            return NOTHING
        text = f"{value:{form}}".rstrip(".")
        return cls(text, float(text))

    @classmethod
    def p(cls, p: float, statement: str = "") -> "Cell":
        """Return the cell of a p-value, or of the reason for having none."""
        if statement:
            return cls(statement)
        if p < LEAST_P:
            return cls(f"< {LEAST_P}", LEAST_P)
        return cls.formatted(p, ".2g")

    @classmethod
    def ended(cls, counts: Mapping[str, int]) -> "Cell":
        if set(counts) == {"done"}:
            return cls.of(counts["done"])
        return cls(format_counts(counts))

    @classmethod
    def measured(cls, value: float) -> "Cell":
        """Return the cell of seconds or mebibytes with three digits; ``-`` for NaN."""
        form = ".0f" if value >= 100 else "#.3g"
        return cls.formatted(value, form)

    @property
    def is_blank(self) -> bool:
        return self in (Cell(""), NOTHING)

    def marked(self, kind: str) -> str:
        return MARKS[kind][self.rank].format(self.text)


NOTHING = Cell("-")
Record = dict[str, Cell]  # the cells of a row by the heads of their columns


def ranked(
    cells: Sequence[Cell], metric: Metric | str, may_win: Iterable[bool] | None = None
) -> list[Cell]:
    """Mark the best and the second of all cells; equal numbers share a mark.

    A mark never moves on to a worse value: if the best may not be marked, no cell is. No value that
    chance alone reaches may be. Columns that are no metric have a direction, ``min`` or ``max``.
    """
    record = metric if isinstance(metric, Metric) else None
    direction = record.direction if record else metric
    marked = list(cells)
    if direction is None:
        return marked
    flags = [True] * len(marked) if may_win is None else list(may_win)
    values = {cell.value for cell in marked if cell.value is not None}
    is_more = direction == "max"
    for rank, value in enumerate(sorted(values, reverse=is_more)[:2], start=1):
        if record and record.chance is not None:
            level = rounded(record, record.chance)
            if not (value > level if is_more else value < level):
                break
        winners = [place for place, cell in enumerate(marked) if cell.value == value]
        winners = [place for place in winners if flags[place]]
        for place in winners:
            marked[place] = replace(marked[place], rank=rank)
        if not winners:
            break
    return marked


def records_of(columns: Mapping[str, Iterable[Cell]]) -> list[Record]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def by_status(counts: Counter[str]) -> dict[str, int]:
    statuses = (*STATUSES, *ENDED_EARLY, "missing")
    return {status: counts[status] for status in statuses if counts[status] > 0}


def format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def format_ended(counts: Mapping[str, int]) -> str:
    if set(counts) == {"done"}:
        return f"n = {counts['done']}"
    return format_counts(counts)


def full_stops(lines: Sequence[str]) -> list[str]:
    return [f"{line.removesuffix('.')}." for line in lines]
