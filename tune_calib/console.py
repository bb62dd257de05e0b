"""Text for a screen: tables and paragraphs as wide as it is, of whole words.

Of a table that is too wide the columns that matter less are left out, and what is left out is
said. In a pipe and in files nothing is: there is no screen, and ``WIDE`` holds.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

from tabulate import MIN_PADDING, SEPARATING_LINE, tabulate

from tune_calib.errors import UserError
from tune_calib.registry import nearest

_GAP = 2  # blanks between two columns
_LINES = 2  # of a cell of words, at most; a longer one needs a wider column
_HEAD_LINES = 3
_INDENT = "  "  # of a cell's second line
_GLUE = "\N{NO-BREAK SPACE}"  # an arrow stands behind its word
_PROSE = 20  # a column with a longer cell holds words, which may stand on several lines


@dataclass(frozen=True)
class Screen:
    """Where text is shown.

    Attributes:
        width: in characters; None: as wide as it takes.
        columns: names of those columns of the main table that are shown; none: those that fit.
        way_out: how to see those that are left out.
    """

    width: int | None = None
    columns: tuple[str, ...] = ()
    way_out: str = "a wider window or a pipe shows all"


WIDE = Screen()
_screen: ContextVar[Screen] = ContextVar("screen", default=WIDE)


def terminal() -> Screen:
    """The terminal that output goes to, as wide as it is; ``WIDE`` in a pipe.

    ``COLUMNS`` of the environment says otherwise, also of a pipe.
    """
    is_limited = os.environ.get("COLUMNS") or (sys.stdout is not None and sys.stdout.isatty())
    return Screen(shutil.get_terminal_size().columns) if is_limited else WIDE


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Text that is made in the block is for this screen."""
    token = _screen.set(screen)
    try:
        yield
    finally:
        _screen.reset(token)


def paragraph(text: str) -> str:
    """Sentences in lines of the screen's width."""
    width = _screen.get().width
    return "\n".join(_wrapped(text, width)) if width else text


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    first: Sequence[str] = (),
    rules: Collection[int] = (),
    is_main: bool = False,
    numbers: Literal["left", "right"] = "left",
) -> str:
    """A table for the screen.

    Args:
        heads: of the columns; that of the first column, which names the rows, always stands.
        rows: their cells, as printed.
        first: heads of the columns that matter most, the most important one first; the others
            follow as they stand.
        rules: numbers of the rows before which a rule stands.
        is_main: the columns that a user asked for are of this table.
        numbers: how the columns behind the first are aligned.

    Raises:
        UserError: a column that was asked for is not there.
    """
    screen = _screen.get()
    columns = [_Column.of(head, [row[i] for row in rows]) for i, head in enumerate(heads)]
    if is_main and screen.columns:
        shown, missing = _asked(heads, screen.columns), []
    else:
        by_need = sorted(range(len(heads)), key=lambda i: (i > 0, _rank(heads[i], first)))
        shown = sorted(_that_fit(columns, by_need, screen.width))
        missing = [column_key(head) for i, head in enumerate(heads) if i not in shown]
    widths = _widths([columns[i] for i in shown], screen.width)
    lines: list[Any] = []
    for number, row in enumerate(rows):
        lines += [SEPARATING_LINE] if number in rules else []
        lines.append([_folded(row[i], width) for i, width in zip(shown, widths, strict=True)])
    titles = [_title(heads[i], width) for i, width in zip(shown, widths, strict=True)]
    align = ["left", *[numbers] * (len(shown) - 1)]
    # tabulate would read the cells as numbers and print 4.50 as 4.5, and strip what is indented.
    body = str(
        tabulate(lines, titles, disable_numparse=True, preserve_whitespace=True, colalign=align)
    )
    note = f"Not shown: {', '.join(missing)}; {screen.way_out}."
    return f"{body}\n{paragraph(note)}" if missing else body


def entries(record: Mapping[str, str]) -> str:
    """Keys and values, a line each, or several where a value is long."""
    indent = max(map(len, record), default=0) + _GAP
    width = _screen.get().width
    lines = []
    for key, value in record.items():
        told = _wrapped(value, max(width - indent, _PROSE)) if width else [value]
        lines += [f"{key:{indent}}{told[0]}", *(f"{'':{indent}}{line}" for line in told[1:])]
    return "\n".join(line.rstrip() for line in lines)


def column_key(head: str) -> str:
    """The name by which a column is asked for: ``o-ece`` of ``O-ECE (%) ↓``."""
    words = re.sub(r"\([^)]*\)", "", head.casefold()).replace("δ", "delta ")
    return re.sub(r"[^\w%]+", "-", words).strip("-").replace("_", "-")


@dataclass(frozen=True)
class _Column:
    """How wide a column is: at least, with words on several lines, and at most, on one."""

    least: int
    most: int

    @classmethod
    def of(cls, head: str, texts: Sequence[str]) -> "_Column":
        most = max(map(len, texts), default=0)
        least = max((_narrowest(text, _LINES, _INDENT) for text in texts), default=0)
        heading = _narrowest(head, _HEAD_LINES) + MIN_PADDING
        return cls(max(least if most > _PROSE else most, heading), max(most, heading))


def _asked(heads: Sequence[str], names: Sequence[str]) -> list[int]:
    """Places of the columns that were asked for, behind the one that names the rows."""
    keys = [column_key(head) for head in heads]
    for name in names:
        if column_key(name) not in keys:
            raise UserError(f"no column {name!r}{nearest(column_key(name), keys)}")
    return list(dict.fromkeys([0, *(keys.index(column_key(name)) for name in names)]))


def _rank(head: str, first: Sequence[str]) -> int:
    return first.index(head) if head in first else len(first)


def _that_fit(columns: Sequence[_Column], by_need: Sequence[int], width: int | None) -> list[int]:
    """Places of the columns that there is room for, the first needed one in any case."""
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
    """Widths of columns that stand side by side: what room is left goes to the first of them."""
    if width is None:
        return [column.most for column in columns]
    room = width - sum(column.least for column in columns) - _GAP * (len(columns) - 1)
    widths = []
    for column in columns:
        more = max(min(column.most - column.least, room), 0)
        widths.append(column.least + more)
        room -= more
    return widths


def _title(head: str, width: int) -> str:
    """A head over several lines where its words are more than the width."""
    return "\n".join(_wrapped(head, max(width - MIN_PADDING, 1)))


def _folded(text: str, width: int) -> str:
    """A cell over several lines where it is too long, indented from the second on."""
    return text if len(text) <= width else f"\n{_INDENT}".join(_wrapped(text, width, _INDENT))


def _narrowest(text: str, lines: int, indent: str = "") -> int:
    """The smallest width in which a text takes so many lines."""
    width = max(map(len, text.split()), default=0) + len(indent)
    while len(_wrapped(text, max(width, 1), indent)) > lines:
        width += 1
    return width


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A text in lines of whole words, which leave room for an indent from the second on."""
    lines = textwrap.wrap(
        text.replace(" ↓", f"{_GLUE}↓").replace(" ↑", f"{_GLUE}↑"),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.removeprefix(indent).replace(_GLUE, " ") for line in lines] or [""]


def of_user(columns: str | None, is_wide: bool) -> Screen:
    """The screen that a user asks for by ``--columns`` and ``--wide``.

    Raises:
        UserError: both are given.
    """
    if columns is not None and is_wide:
        raise UserError("--wide shows all columns and --columns some; give one of them")
    names = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    screen = WIDE if is_wide else terminal()
    return replace(screen, columns=names, way_out="--wide shows all, --columns NAME,NAME some")
