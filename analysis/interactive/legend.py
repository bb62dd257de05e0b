"""The legend of a figure as entries of a page, where it can stand beside any part of a picture."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch

_WIDTH, _HEIGHT = 28, 14  # of the sign of an entry, in pixels
_PX_A_POINT = 1.4
_DASHES = {"--": "5 3", ":": "1.5 2.5", "-.": "5 2.5 1.5 2.5"}

Entry = dict[str, Any]


def entries(figure: Figure) -> list[Entry]:
    """Every entry of the legends of a figure: its label, and its sign as shapes of an SVG.

    Of entries with one label and sign the first is kept.
    """
    own = [axes.get_legend() for axes in figure.axes]
    legends: list[Legend] = [*figure.legends, *(legend for legend in own if legend is not None)]
    found = [
        {"label": text.get_text(), "shapes": _shapes(handle)}
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
    ]
    return [entry for index, entry in enumerate(found) if entry not in found[:index]]


def _shapes(handle: Artist | None) -> list[dict[str, Any]]:
    """The sign as paths of an SVG, each by the names of its attributes."""
    if isinstance(handle, Line2D):
        return [*_line(handle), *_mark(handle)]
    if isinstance(handle, Patch):
        return _box(handle)
    return []


def _line(handle: Line2D) -> list[dict[str, Any]]:
    dashes = str(handle.get_linestyle())
    if dashes in ("None", "none", "", " "):
        return []
    told = {"d": f"M1 {_HEIGHT / 2:g}H{_WIDTH - 1}", "fill": "none"}
    told |= {"stroke": to_hex(handle.get_color()), "stroke-width": "2"}
    return [told | ({"stroke-dasharray": _DASHES[dashes]} if dashes in _DASHES else {})]


def _mark(handle: Line2D) -> list[dict[str, Any]]:
    marker: Any = handle.get_marker()
    if str(marker) in ("None", "none", "", " "):
        return []
    style = MarkerStyle(marker)
    size = min(handle.get_markersize() * _PX_A_POINT, _HEIGHT - 2)
    path = style.get_path().transformed(style.get_transform())
    lines = []
    for polygon in path.to_polygons(closed_only=False):
        corners = np.asarray(polygon, dtype=float) * (size, -size) + (_WIDTH / 2, _HEIGHT / 2)
        places = (f"{x:.1f} {y:.1f}" for x, y in corners)
        lines.append(f"M{'L'.join(places)}")
    face = handle.get_markerfacecolor()
    is_open = not style.is_filled() or str(face) == "none"
    told = {"d": "".join(lines), "fill": "none" if is_open else to_hex(face)}
    return [told | {"stroke": to_hex(handle.get_markeredgecolor()), "stroke-width": "1.2"}]


def _box(handle: Patch) -> list[dict[str, Any]]:
    face, edge = to_rgba(handle.get_facecolor()), to_rgba(handle.get_edgecolor())
    outline = f"M2 2H{_WIDTH - 2}V{_HEIGHT - 2}H2Z"
    if handle.get_hatch():
        outline += "".join(f"M{x} {_HEIGHT - 2}L{x + 8} 2" for x in range(4, _WIDTH - 10, 5))
    told = {"d": outline, "fill": to_hex(face) if face[3] else "none"}
    is_drawn = bool(edge[3]) and handle.get_linewidth() > 0
    return [told | ({"stroke": to_hex(edge)} if is_drawn else {})]
