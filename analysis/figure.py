"""The record of a figure in a report: its name, title, caption and drawing function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_calib.registry import Registry

if TYPE_CHECKING:  # figures are listed without loading matplotlib
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Figure:
    """A figure that a report draws from ``LadderResults`` or ``SearchResults``."""

    name: str  # registry key, name of its files, and part of its id in the page
    title: str  # without a full stop
    reading: str  # instructions for reading it, in sentences
    draw: Callable[[Any], "Drawing | None"]  # returns None if there is nothing to draw
    caption: Callable[[Any], str] = lambda results: ""  # sentences on the drawn results
    # Reason for ``draw`` to return None, without a full stop; empty if it needs no mention.
    absent: Callable[[Any], str] | str = ""
    takes: tuple[str, ...] = ()  # options of the caller: ``settings`` (two or more), ``metric``
    position: int = 1000  # sort key in the page; equal ones are sorted by name

    def full_caption(self, results: Any) -> str:
        return f"{self.reading} {self.caption(results)}".rstrip()

    def why_absent(self, results: Any) -> str:
        return self.absent if isinstance(self.absent, str) else self.absent(results)


def report_figure(**record: Any) -> Callable[[Callable[[Any], "Drawing | None"]], Figure]:
    """Make the function below draw a figure with the other fields of its record."""
    return lambda draw: Figure(draw=draw, **record)


LADDER_FIGURES: Registry[Figure] = Registry("figure of a ladder", "analysis.ladder.figures", Figure)
SEARCH_FIGURES: Registry[Figure] = Registry("figure of a search", "analysis.search.figures", Figure)
