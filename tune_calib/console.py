"""Lay out text for a screen, wrapped at its width, and print it without control characters."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import typer

_GAP = 2  # spaces after a key
_LEAST = 20  # minimum width of a value, in characters

# C0 (except tab and newline) and C1; marks, separators and overrides that change the reading order
# of a line; and bytes of a file name that cannot be decoded.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Escape control characters (``\u001b``), with which a text could forge what is shown."""
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def echo(text: object = "", err: bool = False) -> None:
    """Print a text with its control characters escaped, and a newline; on stderr if ``err``."""
    stream = sys.stderr if err else sys.stdout
    # In a live view this is rich's proxy, which has no encoding; Typer would write past it.
    proxy = stream if getattr(stream, "encoding", "") is None else None
    typer.echo(printable(str(text)), proxy, err=err)  # noqa: TID251


@dataclass(frozen=True)
class Screen:
    """The screen that a text is laid out for, and the columns of its main table."""

    width: int | None = None  # in characters; None is unlimited
    columns: tuple[str, ...] = ()  # to show; if empty, those that fit
    more: str = "a wider window or a pipe shows all"  # how to see all columns
    some: str = ""  # how to see some of them


WIDE = Screen()
_screen: ContextVar[Screen] = ContextVar("screen", default=WIDE)


def terminal() -> Screen:
    """Return the terminal of the output, or ``WIDE`` for a pipe; ``COLUMNS`` overrides both."""
    if os.environ.get("COLUMNS") or (sys.stdout is not None and sys.stdout.isatty()):
        return Screen(shutil.get_terminal_size().columns)
    return WIDE


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Lay out the text of the block for a screen."""
    token = _screen.set(screen)
    try:
        yield
    finally:
        _screen.reset(token)


@dataclass(frozen=True)
class Prose:
    """Sentences that are wrapped at the width of the screen."""

    sentences: str

    def on(self, screen: Screen) -> str:
        """Lay out the sentences."""
        if not screen.width:
            return self.sentences
        return "\n".join(wrap(self.sentences, screen.width))


class Shown(Protocol):
    """A part of a text that depends on where it is shown, such as a table."""

    def on(self, screen: Screen) -> str:
        """Lay out the part."""


Part = Shown | str
"""A plain text is printed unchanged, however long it is."""


class Text(str):
    """Text of unlimited width with its parts, by which it can be laid out for a screen."""

    parts: tuple[Part, ...]

    def __new__(cls, parts: Iterable[Part]) -> "Text":
        """Join the parts without a width limit."""
        parts = tuple(parts)
        text = super().__new__(cls, _join(parts, WIDE))
        text.parts = parts
        return text


def shown(text: str) -> str:
    """Lay out a text for the current screen; refuse a requested column that it does not have."""
    if isinstance(text, Text):
        return _join(text.parts, _screen.get())
    return text


def _join(parts: Iterable[Part], screen: Screen) -> str:
    return "\n".join(part if isinstance(part, str) else part.on(screen) for part in parts)


def entries(record: Mapping[str, str], margin: str = "") -> str:
    """Format keys and values after a margin, one line each; long values are wrapped."""
    indent = max(map(len, record), default=0) + _GAP
    width = _screen.get().width
    lines = []
    for key, value in record.items():
        parts = [value]
        if width:
            parts = wrap(value, max(width - len(margin) - indent, _LEAST))
        for name, part in zip_longest([key], parts, fillvalue=""):
            lines.append(f"{margin}{name:{indent}}{part}".rstrip())
    return "\n".join(lines)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap a longer text at whole words, with an indent from the second line on."""
    if len(text) <= width:
        return [text]
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines or [""]
