"""Text for a screen: tables and paragraphs as wide as it is, of whole words.

Whatever the program prints goes through ``echo``, which shows the control characters of foreign
text instead of sending them to the terminal.

Of a table that is too wide the columns that matter less are left out, and what is left out is
said. In a pipe and in files nothing is: there is no screen, and ``WIDE`` holds.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import typer
from pydantic import TypeAdapter, ValidationError
from tabulate import MIN_PADDING, SEPARATING_LINE, tabulate

from tune_calib.errors import UserError
from tune_calib.text import nearest

_GAP = 2  # blanks between two columns
_LINES = 2  # of a cell of words, at most; a longer one needs a wider column
_HEAD_LINES = 3
_INDENT = "  "  # of a cell's second line
_GLUE = "\N{NO-BREAK SPACE}"  # an arrow stands behind its word
_PROSE = 20  # a column with a longer cell holds words, which may stand on several lines


# C0 (but for tab and newline) and C1; marks, separators and overrides that change in which order a
# line is read; and what of a file name is no text.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return a text with its control characters written out, such as ``\u001b``.

    Labels, titles, messages and names of folders may come from anybody. As such characters they
    could hide or forge what a terminal or a page shows.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: object = "", err: bool = False) -> None:
    """Print a text without control characters, and a line end.

    Args:
        text: what is printed.
        err: print it on stderr.
    """
    typer.echo(printable(str(text)), err=err)  # noqa: TID251


@dataclass(frozen=True)
class Screen:
    """Where text is shown.

    Attributes:
        width: in characters; None: as wide as it takes.
        columns: names of those columns of the main table that are shown; none: those that fit.
        more: what shows all columns.
        some: what shows some of the main table, said behind it.
    """

    width: int | None = None
    columns: tuple[str, ...] = ()
    more: str = "a wider window or a pipe shows all"
    some: str = ""


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


@dataclass(frozen=True)
class Table:
    """A table that is laid out when it is shown.

    Attributes:
        heads: of the columns; that of the first column, which names the rows, always stands.
        rows: their cells, as printed.
        first: heads of the columns that matter most, the most important one first; the others
            follow as they stand.
        rules: numbers of the rows before which a rule stands.
        is_main: the columns that a user asks for are of this table.
        numbers: how the columns behind the first are aligned.
    """

    heads: list[str]
    rows: list[list[str]]
    first: list[str] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    is_main: bool = False
    numbers: Literal["left", "right"] = "left"

    def on(self, screen: Screen) -> str:
        """The table as a screen has room for it.

        Raises:
            UserError: a column that was asked for is not there.
        """
        columns = [_Column.of(h, [row[i] for row in self.rows]) for i, h in enumerate(self.heads)]
        if self.is_main and screen.columns:
            places, missing = _asked(self.heads, screen.columns), []
        else:
            places = sorted(_that_fit(columns, self._by_need(), screen.width))
            missing = [column_key(head) for i, head in enumerate(self.heads) if i not in places]
        body = self._laid_out(places, _widths([columns[i] for i in places], screen.width))
        more = screen.more + (screen.some if self.is_main else "")
        note = Prose(f"Not shown: {', '.join(missing)}; {more}.")
        return f"{body}\n{note.on(screen)}" if missing else body

    def _by_need(self) -> list[int]:
        ranks = {head: rank for rank, head in enumerate(self.first)}
        places = range(len(self.heads))
        return sorted(places, key=lambda i: (i > 0, ranks.get(self.heads[i], len(ranks))))

    def _laid_out(self, places: Sequence[int], widths: Sequence[int]) -> str:
        kept = list(zip(places, widths, strict=True))
        lines: list[Any] = []
        for number, row in enumerate(self.rows):
            lines += [SEPARATING_LINE] if number in self.rules else []
            lines.append([_folded(row[place], width) for place, width in kept])
        return str(
            tabulate(
                lines,
                [_title(self.heads[place], width) for place, width in kept],
                colalign=["left", *[self.numbers] * (len(kept) - 1)],
                # Else it prints 4.50 as 4.5, and strips what is indented.
                disable_numparse=True,
                preserve_whitespace=True,
            )
        )


@dataclass(frozen=True)
class Prose:
    """Sentences, in lines of the screen's width."""

    sentences: str

    def on(self, screen: Screen) -> str:
        """The sentences as a screen has room for them."""
        return "\n".join(_wrapped(self.sentences, screen.width)) if screen.width else self.sentences


Part = Table | Prose | str
"""A line of a text or several; one that is a plain text stands as it is, however long."""


class Text(str):
    """What is printed: as wide as it takes, until it is laid out for a screen.

    Attributes:
        parts: of which it is made.
    """

    parts: tuple[Part, ...]

    def __new__(cls, parts: Iterable[Part]) -> "Text":
        """The text of some parts."""
        kept = tuple(parts)
        text = super().__new__(cls, _joined(kept, WIDE))
        text.parts = kept
        return text

    def plain(self) -> list[Any]:
        """Its parts as plain JSON values, to be kept for other screens."""
        return [part if isinstance(part, str) else asdict(part) for part in self.parts]

    @classmethod
    def of(cls, plain: Any) -> "Text | None":
        """The text of what ``plain`` gave; None where that is foreign."""
        try:
            return cls(TypeAdapter(list[Part]).validate_python(plain))
        except ValidationError:
            return None


def shown(text: str) -> str:
    """A text as the command's screen has room for it.

    Raises:
        UserError: a column that was asked for is not there.
    """
    return _joined(text.parts, _screen.get()) if isinstance(text, Text) else text


def _joined(parts: Iterable[Part], screen: Screen) -> str:
    return "\n".join(part if isinstance(part, str) else part.on(screen) for part in parts)


def entries(record: Mapping[str, str], margin: str = "") -> str:
    """Keys and values, a line each, or several where a value is long.

    Args:
        record: the values by their keys.
        margin: before each line.
    """
    indent = max(map(len, record), default=0) + _GAP
    width = _screen.get().width
    lines = []
    for key, value in record.items():
        told = _wrapped(value, max(width - len(margin) - indent, _PROSE)) if width else [value]
        lines += [f"{margin}{name:{indent}}{line}"
                  for name, line in zip([key, *[""] * len(told)], told, strict=False)]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def column_key(head: str) -> str:
    """The name by which a column is asked for: ``o-ece`` of ``O-ECE (%) ↓``."""
    words = re.sub(r"\([^)]*\)", "", head.casefold()).replace("δ", "delta ")
    return re.sub(r"[^\w%]+", "-", words).strip("-").replace("_", "-")


@dataclass(frozen=True)
class _Column:
    """How wide a column is: at least, with words and head on several lines, and at most, on one."""

    least: int
    most: int

    @classmethod
    def of(cls, head: str, texts: Sequence[str]) -> "_Column":
        most = max(map(len, texts), default=0)
        least = max((_narrowest(text, _LINES, _INDENT) for text in texts), default=0)
        heading = _narrowest(head, _HEAD_LINES) + MIN_PADDING
        least = max(least if most > _PROSE else most, heading)
        return cls(least, max(most, len(head) + MIN_PADDING))


def _asked(heads: Sequence[str], names: Sequence[str]) -> list[int]:
    """Places of the columns that were asked for, behind the one that names the rows."""
    keys = [column_key(head) for head in heads]
    for name in names:
        if column_key(name) not in keys:
            raise UserError(f"no column {name!r}{nearest(column_key(name), keys)}")
    return list(dict.fromkeys([0, *(keys.index(column_key(name)) for name in names)]))


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
