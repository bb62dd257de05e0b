"""A figure of a report as a record: its name, title, caption and function that draws it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tune_calib.registry import Registry

if TYPE_CHECKING:  # figures are listed without loading matplotlib
    from matplotlib.figure import Figure as Drawing

R = TypeVar("R")


@dataclass(frozen=True)
class Figure(Generic[R]):
    """A figure that a report draws from ``R``, ``LadderResults`` or ``SearchResults``."""

    name: str  # registry key, name of its files, and part of its id in the page
    title: str  # without a full stop
    reading: str  # instructions for reading it, in sentences
    draw: Callable[[R], "Drawing | None"]  # returns None where there is nothing to draw
    caption: Callable[[R], str] = lambda results: ""  # sentences on the drawn results
    # The reason for ``draw`` to return None, without a full stop; empty where nobody would miss it.
    absent: str | Callable[[R], str] = ""
    takes: tuple[str, ...] = ()  # options of a caller, of ``settings`` (two or more) and ``metric``
    position: int = 1000  # in the page, the smallest first, equal ones by their names

    def full_caption(self, results: R) -> str:
        """Return the instructions for reading it and the sentences on these results."""
        return f"{self.reading} {self.caption(results)}".rstrip()

    def why_absent(self, results: R) -> str:
        """Return the reason for not drawing it; empty where nobody would miss it."""
        return self.absent if isinstance(self.absent, str) else self.absent(results)


LADDER_FIGURES: Registry[Figure[Any]] = Registry(
    "figure of a ladder", "analysis.ladder.figures", Figure
)
SEARCH_FIGURES: Registry[Figure[Any]] = Registry(
    "figure of a search", "analysis.search.figures", Figure
)
