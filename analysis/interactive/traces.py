"""What was drawn on axes of matplotlib as traces of Plotly: the same numbers, colours and marks."""

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import Transform
from numpy.typing import NDArray

from analysis.interactive.told import told

PX_A_POINT = 1.6
_CENTRE_PX = 6.0  # Plotly treats smaller marks as if they were this large
_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
    "P": "cross", "X": "x", "*": "star", "<": "triangle-left", ">": "triangle-right",
    ".": "circle", "x": "x-thin", "+": "cross-thin", "|": "line-ns",
}  # fmt: skip
_DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
_NONE = ("None", "none", "", " ")

Trace = dict[str, Any]
Points = NDArray[np.float64]


class UnknownArtistError(Exception):
    """Something was drawn that has no counterpart here: the picture stays a picture."""


def traces(axes: Axes) -> list[Trace]:
    """Everything that was drawn on some axes, what lies below first.

    Raises:
        UnknownArtistError: something has no counterpart.
    """
    if axes.images:
        raise UnknownArtistError("an image")
    bars = [each for each in axes.containers if isinstance(each, BarContainer)]
    of_bars = {id(patch) for each in bars for patch in each}
    drawn: list[tuple[float, list[Trace]]] = []
    for container in bars:
        drawn.append((container[0].get_zorder() if len(container) else 0, [_bars(axes, container)]))
    for patch in axes.patches:
        if id(patch) not in of_bars:
            drawn.append((patch.get_zorder(), [_patch(axes, patch)]))
    for collection in axes.collections:
        drawn.append((collection.get_zorder(), _collection(axes, collection)))
    for line in axes.lines:
        drawn.append((line.get_zorder(), [_line(axes, line)]))
    drawn.sort(key=lambda pair: pair[0])
    found = [trace for _, own in drawn for trace in own if trace]
    return [*found, *_centres(found)]


def _centres(drawn: Sequence[Trace]) -> Iterator[Trace]:
    """Make the centre of each large mark a small invisible mark with the same hover text.

    Of all marks under the pointer, Plotly shows the text of the smallest, and among equally small
    ones that of the uppermost: a large mark would be unreachable where a smaller one, or the corner
    of a line, lies within it.
    """
    covers_others = False
    for trace in drawn:
        marker = trace.get("marker", {})
        size = marker.get("size")
        if covers_others and "text" in trace and isinstance(size, float) and size > _CENTRE_PX:
            yield {
                **trace,
                "mode": "markers",
                "opacity": 0,
                "marker": marker | {"size": _CENTRE_PX},
            }
        covers_others |= trace["type"] == "scatter" and trace.get("hoverinfo") != "skip"


def lines_of(text: str) -> str:
    """A text of several lines as Plotly takes it, which reads some HTML."""
    return "<br>".join(html.escape(line, quote=False) for line in text.split("\n"))


def in_data(axes: Axes, transform: Transform, points: Points) -> Points:
    """Places in the units of the axes, from whatever units they were drawn in."""
    if transform == axes.transData:
        return points
    return np.asarray(axes.transData.inverted().transform(transform.transform(points)))


def numbers(values: Iterable[float]) -> list[float | None]:
    """With six digits, which no screen tells from all; what is no number is a gap."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in map(float, values)]


def css(color: Any, alpha: float | None = None) -> str:
    """A colour as the page writes it."""
    red, green, blue, own = to_rgba(color)
    opacity = own if alpha is None else alpha
    shades = ",".join(str(round(255 * shade)) for shade in (red, green, blue))
    return f"rgb({shades})" if opacity == 1 else f"rgba({shades},{opacity:.3g})"


def _named(text: str) -> str:
    """A text whose first line is the name of the point."""
    first, *more = text.split("\n")
    return "<br>".join([f"<b>{html.escape(first, quote=False)}</b>", *map(lines_of, more)])


def _hover(axes: Axes, label: object, texts: Sequence[str]) -> Trace:
    """What is shown of a point when it is pointed at: what was told, else its place."""
    if texts:
        return {"text": [_named(text) for text in texts], "hovertemplate": "%{text}<extra></extra>"}
    name = str(label)
    title = "" if name.startswith("_") else f"<b>{lines_of(name)}</b><br>"
    x, y = (
        lines_of(text.replace("\n", " ")) or plain
        for text, plain in ((axes.get_xlabel(), "x"), (axes.get_ylabel(), "y"))
    )
    place = f"{x}: %{{x:.4g}}<br>{y}: %{{y:.4g}}"
    return {"hovertemplate": f"{title}{place}<extra></extra>"}


def _line(axes: Axes, line: Line2D) -> Trace:
    points = in_data(axes, line.get_transform(), np.asarray(line.get_xydata(), dtype=float))
    marker, dashes = str(line.get_marker()), str(line.get_linestyle())
    has_line, has_marks = dashes not in _NONE, marker not in _NONE
    if not len(points) or not (has_line or has_marks):
        return {}
    alpha = line.get_alpha()
    trace: Trace = {
        "type": "scatter",
        "x": numbers(points[:, 0]),
        "y": numbers(points[:, 1]),
        "mode": "+".join(["lines"] * has_line + ["markers"] * has_marks),
        **({} if alpha is None else {"opacity": alpha}),
    }
    if has_line:
        # What is no place of the data, as a rule across the axes, tells nothing.
        is_rule = line.get_transform() != axes.transData
        shape = {"steps-post": "hv", "steps-pre": "vh", "steps-mid": "hvh"}
        trace["line"] = {
            "color": css(line.get_color()),
            "width": PX_A_POINT * line.get_linewidth(),
            "dash": _DASHES.get(dashes, "solid"),
            "shape": shape.get(line.get_drawstyle(), "linear"),
        }
        if is_rule and not has_marks:
            return trace | {"hoverinfo": "skip"}
    if has_marks:
        trace["marker"] = _marks(line, marker, len(points))
    return trace | _hover(axes, line.get_label(), told(line))


def _marks(line: Line2D, marker: str, count: int) -> Trace:
    if marker not in _SYMBOLS:
        raise UnknownArtistError(f"the mark {marker}")
    size: Any = PX_A_POINT * line.get_markersize()
    every = line.get_markevery()
    if isinstance(every, tuple):
        start, step = every
        size = [size if i >= start and (i - start) % step == 0 else 0 for i in range(count)]
    face = line.get_markerfacecolor()
    is_open = str(face) == "none"
    edge = {"color": css(line.get_markeredgecolor()), "width": max(1, line.get_markeredgewidth())}
    symbol = _SYMBOLS[marker] + ("-open" if is_open else "")
    return {
        "symbol": symbol,
        "size": size,
        "color": css(line.get_markeredgecolor() if is_open else face),
        "line": edge,
    }


def _collection(axes: Axes, drawn: Collection) -> list[Trace]:
    if isinstance(drawn, LineCollection):
        return _segments(axes, drawn)
    if isinstance(drawn, PathCollection):
        return [_scatter(axes, drawn)]
    if isinstance(drawn, PolyCollection):
        polygons = [path.vertices for path in drawn.get_paths()]
        return [_polygons(axes, drawn.get_transform(), polygons, drawn.get_facecolor()[0])]
    raise UnknownArtistError(type(drawn).__name__)


def _segments(axes: Axes, drawn: LineCollection) -> list[Trace]:
    """Bars of errors and the like: they tell nothing that the mark on them does not."""
    colors = drawn.get_color()
    if drawn.get_array() is not None or len(colors) > 1:
        raise UnknownArtistError("lines of several colours")
    gap = np.full((1, 2), np.nan)
    parts = [np.vstack([np.asarray(each), gap]) for each in drawn.get_segments()]
    if not parts:
        return []
    points = in_data(axes, drawn.get_transform(), np.vstack(parts))
    width = float(np.ravel(drawn.get_linewidth())[0])
    look = {"color": css(colors[0]), "width": max(1.0, PX_A_POINT * width)}
    place = {"x": numbers(points[:, 0]), "y": numbers(points[:, 1])}
    return [{"type": "scatter", "mode": "lines", "line": look, "hoverinfo": "skip", **place}]


def _scatter(axes: Axes, drawn: PathCollection) -> Trace:
    if drawn.get_rasterized():
        raise UnknownArtistError("marks that are too many")
    points = np.asarray(drawn.get_offsets(), dtype=float)
    colors = [css(color) for color in drawn.get_facecolor()]
    sizes = [float(PX_A_POINT * math.sqrt(size)) for size in drawn.get_sizes()]
    marks = {
        "symbol": _symbol(drawn),
        "color": colors[0] if len(colors) == 1 else colors,
        "size": sizes[0] if len(sizes) == 1 else sizes,
    }
    place = {"x": numbers(points[:, 0]), "y": numbers(points[:, 1])}
    hover = _hover(axes, drawn.get_label(), told(drawn))
    return {"type": "scatter", "mode": "markers", "marker": marks, **place, **hover}


def _symbol(drawn: PathCollection) -> str:
    (path,) = drawn.get_paths()
    for marker, symbol in _SYMBOLS.items():
        style = MarkerStyle(marker)
        own = style.get_path().transformed(style.get_transform())
        corners, others = np.asarray(own.vertices), np.asarray(path.vertices)
        if corners.shape == others.shape and np.allclose(corners, others):
            return symbol
    raise UnknownArtistError("a mark of its own")


def _polygons(axes: Axes, transform: Transform, parts: Sequence[Any], face: Any) -> Trace:
    gap = np.full((1, 2), np.nan)
    points = np.vstack([np.vstack([np.asarray(part, dtype=float), gap]) for part in parts])
    points = in_data(axes, transform, points)
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": css(face),
        "line": {"width": 0, "color": css(face)}, "hoverinfo": "skip",
        "x": numbers(points[:, 0]), "y": numbers(points[:, 1]),
    }  # fmt: skip


def _patch(axes: Axes, patch: Patch) -> Trace:
    polygons = patch.get_path().to_polygons(patch.get_patch_transform(), closed_only=False)
    transform = patch.get_transform() - patch.get_patch_transform()
    trace = _polygons(axes, transform, polygons, patch.get_facecolor())
    edge = {"color": css(patch.get_edgecolor()), "width": PX_A_POINT * patch.get_linewidth()}
    return trace | {"line": edge}


def _bars(axes: Axes, container: BarContainer) -> Trace:
    bars: list[Rectangle] = list(container)
    if not bars:
        return {}
    is_upright = container.orientation != "horizontal"
    left, low = [bar.get_x() for bar in bars], [bar.get_y() for bar in bars]
    widths, heights = [bar.get_width() for bar in bars], [bar.get_height() for bar in bars]
    along, across = (left, widths) if is_upright else (low, heights)
    base, length = (low, heights) if is_upright else (left, widths)
    middle = numbers(a + w / 2 for a, w in zip(along, across, strict=True))
    names = ("x", "y") if is_upright else ("y", "x")
    trace: Trace = {
        "type": "bar", "orientation": "v" if is_upright else "h",
        names[0]: middle, names[1]: numbers(length), "width": numbers(across),
        "marker": _bar_look(bars),
    }  # fmt: skip
    if any(base):  # on a logarithmic axis there is no 0 to begin at
        trace["base"] = numbers(base)
    texts = [line for bar in bars for line in told(bar)]
    hover = _hover(axes, container.get_label(), texts)
    if "text" in hover:  # else it would be written on the bars
        hover["customdata"] = hover.pop("text")
        hover["hovertemplate"] = "%{customdata}<extra></extra>"
    return trace | hover


def _bar_look(bars: Sequence[Rectangle]) -> Trace:
    edge = css(bars[0].get_edgecolor())
    if bars[0].get_hatch():
        pattern = {"shape": "/", "fgcolor": edge, "bgcolor": "rgba(0,0,0,0)", "size": 6}
        return {"color": "rgba(0,0,0,0)", "pattern": pattern, "line": {"color": edge, "width": 1}}
    colors = [css(bar.get_facecolor()) for bar in bars]
    return {
        "color": colors[0] if len(set(colors)) == 1 else colors,
        "line": {"color": edge, "width": bars[0].get_linewidth()},
    }
