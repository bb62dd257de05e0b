"""A generated page, and tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Page(NamedTuple):
    """A generated page.

    Attributes:
        path: relative to ``docs/pages``.
        title: its entry in the navigation.
        text: Markdown.
        section: the section of the navigation that lists it; None if ``mkdocs.yml`` names it.
    """

    path: str
    title: str
    text: str
    section: str | None = None


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table, with pipes escaped and line breaks replaced by spaces."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
