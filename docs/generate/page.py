"""A made page, and how its parts are written as Markdown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Page(NamedTuple):
    """A page.

    Attributes:
        path: below the folder of the pages.
        title: in the navigation.
        text: Markdown.
        section: of the navigation where it is listed; None if the navigation names it itself.
    """

    path: str
    title: str
    text: str
    section: str | None = None


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a pipe in a cell is escaped, a line break becomes a space."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
