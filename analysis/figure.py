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
    """A figure that a report has where its results allow it.

    ``R`` is what it is drawn from: ``LadderResults`` or ``SearchResults``.

    Attributes:
        name: registry key, name of its files, and part of its id in the page.
        title: title without a full stop.
        reading: instructions for reading it, in sentences.
        draw: function that draws it, or returns None where there is nothing to draw.
        caption: sentences on the drawn results.
        absent: reason for ``draw`` to return None, without a full stop; empty where nobody would
            miss the figure.
        takes: options of a caller, of ``settings`` (two or more) and ``metric``.
        position: place in the page, the smallest first, equal ones by their names.
    """

    name: str
    title: str
    reading: str
    draw: Callable[[R], "Drawing | None"]
    caption: Callable[[R], str] = lambda results: ""
    absent: str | Callable[[R], str] = ""
    takes: tuple[str, ...] = ()
    position: int = 1000

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
