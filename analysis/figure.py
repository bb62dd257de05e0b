"""A figure of a report as a record: what it is called, what it tells, and how it is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tune_calib.registry import Registry

if TYPE_CHECKING:  # so that what figures tell can be listed without loading what draws them
    from matplotlib.figure import Figure as Drawing

R = TypeVar("R")


@dataclass(frozen=True)
class Figure(Generic[R]):
    """A figure that a report has where its results allow it.

    ``R`` is what it is drawn from: ``LadderResults`` or ``SearchResults``.

    Attributes:
        name: registry key, name of its files, and part of its id in the page.
        title: what it shows, without a full stop.
        reading: how to read it, in sentences.
        draw: draws it; None where there is nothing to draw.
        caption: what these results show in it, in sentences, computed from the rows that it draws.
        absent: why there is none where ``draw`` gives None, without a full stop; empty where
            nobody waits for it.
        takes: what a caller may choose, of ``settings`` (two or more) and ``metric``.
        position: where it stands in the page, the smallest first, equal ones by their names.
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
        """Return how to read it, and what these results show in it."""
        return f"{self.reading} {self.caption(results)}".rstrip()

    def why_absent(self, results: R) -> str:
        """Return why it is not drawn of these results; empty where nobody waits for it."""
        return self.absent if isinstance(self.absent, str) else self.absent(results)


LADDER_FIGURES: Registry[Figure[Any]] = Registry(
    "figure of a ladder", "analysis.ladder.figures", Figure
)
SEARCH_FIGURES: Registry[Figure[Any]] = Registry(
    "figure of a search", "analysis.search.figures", Figure
)
