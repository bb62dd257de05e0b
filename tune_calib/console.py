"""Text for a screen: paragraphs as wide as it is, of whole words.

Whatever the program prints goes through ``echo``, which shows the control characters of foreign
text instead of sending them to the terminal.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

import typer

_GAP = 2  # blanks behind a key
_GLUE = "\N{NO-BREAK SPACE}"  # an arrow stands behind its word
_LEAST = 20  # letters of a value in a line


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

    def without_choice(self) -> "Screen":
        """The screen of a table that is not the main one."""
        return replace(self, columns=(), some="")


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
class Prose:
    """Sentences, in lines of the screen's width."""

    sentences: str

    def on(self, screen: Screen) -> str:
        """The sentences as a screen has room for them."""
        return "\n".join(wrap(self.sentences, screen.width)) if screen.width else self.sentences


class Shown(Protocol):
    """A part of a text that depends on where it is shown, such as a table."""

    def on(self, screen: Screen) -> str:
        """The part as a screen has room for it."""


Part = Shown | str
"""A part that is a plain text stands as it is, however long."""


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
        told = wrap(value, max(width - len(margin) - indent, _LEAST)) if width else [value]
        lines += [f"{margin}{name:{indent}}{line}"
                  for name, line in zip([key, *[""] * len(told)], told, strict=False)]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """A text in lines of whole words, which leave room for an indent from the second on."""
    lines = textwrap.wrap(
        text.replace(" ↓", f"{_GLUE}↓").replace(" ↑", f"{_GLUE}↑"),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.removeprefix(indent).replace(_GLUE, " ") for line in lines] or [""]
