"""What the points of a figure are, as a reader is told who points at one."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from matplotlib.artist import Artist
from matplotlib.container import BarContainer

# Beside the artists, which have no room for it; it goes when its figure does.
_TOLD: "WeakKeyDictionary[Artist, list[str]]" = WeakKeyDictionary()


def tell(drawn: Artist | BarContainer, texts: Sequence[str]) -> None:
    """Say of every point that was drawn what it is.

    Args:
        drawn: a line with its marks, the marks of a scatter, or bars.
        texts: of the points in their order, each of one or more lines; the first names the point.
    """
    artists = list(drawn) if isinstance(drawn, BarContainer) else [drawn]
    each = [[text] for text in texts] if isinstance(drawn, BarContainer) else [list(texts)]
    for artist, own in zip(artists, each, strict=True):
        _TOLD[artist] = own


def told(artist: Artist) -> list[str]:
    """What was said of the points of an artist; nothing if they tell no more than their place."""
    return _TOLD.get(artist, [])
