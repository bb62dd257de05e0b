"""The layout of a table on a screen, in lines of whole words.

Columns that do not fit are left out, the least important first, and a note names them. A pipe or a
file has no width and gets all columns.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from tune_calib.console import Prose, Screen, wrap
from tune_calib.errors import UserError
from tune_calib.text import nearest

_GAP = 2  # blanks between two columns
_LINES = 2  # of a cell of words, at most; a longer one needs a wider column
_HEAD_LINES = 3
_INDENT = "  "  # of a cell's second line
_PROSE = 20  # a column with a longer cell holds words, which may stand on several lines


@dataclass(frozen=True)
class _Column:
    """A column, its least width with words and head on several lines, and its width on one."""

    head: str
    cells: Sequence[str]
    is_number: bool

    @cached_property
    def least(self) -> int:
        most = max(map(len, self.cells), default=0)
        if most > _PROSE:
            most = max(_narrowest(text, _LINES, _INDENT) for text in self.cells)
        return max(most, _narrowest(self.head, _HEAD_LINES))

    @cached_property
    def most(self) -> int:
        return max(map(len, [self.head, *self.cells]))

    def justified(self, text: str, width: int) -> str:
        return text.rjust(width) if self.is_number else text.ljust(width)


def layout(
    heads: Sequence[str],
    columns: Sequence[Sequence[str]],
    are_numbers: Sequence[bool],
    first: Sequence[str],
    rules: Container[int],
    screen: Screen,
) -> str:
    """Lay out a table for a screen; the first column is always shown.

    ``first`` are heads of the columns that matter most, ``rules`` the rows with a line above.
    """
    every = [_Column(*each) for each in zip(heads, columns, are_numbers, strict=True)]
    chosen = _requested(heads, screen.columns)
    missing: list[str] = []
    if not screen.columns:
        ranks = {head: rank for rank, head in enumerate(first)}
        by_need = sorted(range(len(heads)), key=lambda i: (i > 0, ranks.get(heads[i], len(ranks))))
        chosen = sorted(_that_fit(every, by_need, screen.width))
        missing = [column_key(head) for i, head in enumerate(heads) if i not in chosen]
    shown = [every[index] for index in chosen]
    body = "\n".join(_rows(shown, _widths(shown, screen.width), rules))
    note = Prose(f"Not shown: {', '.join(missing)}; {screen.more}{screen.some}.")
    return f"{body}\n{note.on(screen)}" if missing else body


def column_key(head: str) -> str:
    """Return the name by which a column is chosen: ``o-ece`` of ``O-ECE (%) ↓``."""
    words = re.sub(r"\([^)]*\)", "", head.casefold()).replace("δ", "delta ")
    return re.sub(r"[^\w%]+", "-", words).strip("-").replace("_", "-")


def _requested(heads: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the indices of the requested columns, after the one that names the rows."""
    keys = [column_key(head) for head in heads]
    for name in names:
        if column_key(name) not in keys:
            raise UserError(f"no column {name!r}{nearest(column_key(name), keys)}")
    return list(dict.fromkeys([0, *(keys.index(column_key(name)) for name in names)]))


def _that_fit(columns: Sequence[_Column], by_need: Sequence[int], width: int | None) -> list[int]:
    """Return the indices of the columns that fit, the most important one in any case."""
    if width is None:
        return list(by_need)
    shown: list[int] = []
    room = width + _GAP
    for index in by_need:
        needed = columns[index].least + _GAP
        if not shown or needed <= room:
            shown.append(index)
            room -= needed
    return shown


def _widths(columns: Sequence[_Column], width: int | None) -> list[int]:
    """Return the widths of adjacent columns; spare room goes to the first of them."""
    if width is None:
        return [column.most for column in columns]
    room = width - sum(column.least for column in columns) - _GAP * (len(columns) - 1)
    widths = []
    for column in columns:
        more = max(min(column.most - column.least, room), 0)
        widths.append(column.least + more)
        room -= more
    return widths


def _rows(columns: Sequence[_Column], widths: Sequence[int], rules: Container[int]) -> list[str]:
    """Return the lines of the heads and rows."""
    gap, pairs = " " * _GAP, list(zip(columns, widths, strict=True))

    def lines(cells: Iterable[Sequence[str]]) -> list[str]:
        level = zip_longest(*cells, fillvalue="")
        rows = [[c.justified(t, w) for t, (c, w) in zip(row, pairs, strict=True)] for row in level]
        return [gap.join(row).rstrip() for row in rows]

    rule = gap.join("-" * width for width in widths)
    found = [*lines(wrap(column.head, width) for column, width in pairs), rule]
    for number in range(len(columns[0].cells) if columns else 0):
        found += [rule] * (number in rules)
        found += lines(_folded(column.cells[number], width) for column, width in pairs)
    return found


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a cell, indented from the second on."""
    if len(text) <= width:
        return [text]
    first, *others = wrap(text, width, _INDENT)
    return [first, *(f"{_INDENT}{line}" for line in others)]


def _narrowest(text: str, lines: int, indent: str = "") -> int:
    """Return the smallest width in which a text takes so many lines."""
    width = max(map(len, text.split()), default=0) + len(indent)
    while len(wrap(text, max(width, 1), indent)) > lines:
        width += 1
    return width
