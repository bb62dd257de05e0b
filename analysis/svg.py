"""Figures as SVG, with tooltips on their points, and inline in a page."""

import math
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from weakref import WeakKeyDictionary
from xml.etree import ElementTree as ET

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from tune_calib.console import printable

_POINTS_AN_INCH = 72
_NARROWEST = 6.0  # smallest size of a mark with a tooltip, in points

# The elements that matplotlib uses. Folders may come from anybody, so the page takes no script,
# link, style sheet or other element from their figures.
_ELEMENTS = frozenset(
    ("svg", "g", "defs", "path", "use", "rect", "circle", "image", "text", "tspan", "title",
     "clipPath", "mask", "pattern")
)  # fmt: skip
_MOST_LABELS = 1000  # points of one artist; more of them would make a page slow to open
_HREF = "{http://www.w3.org/1999/xlink}href"
_SVG = "{http://www.w3.org/2000/svg}"
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_DIGITS = re.compile(r"(\.\d\d)\d+")  # screens do not resolve a hundredth of a point

# Labels by artist, since artists have no attribute for them; an entry is dropped with its figure.
_LABELS: "WeakKeyDictionary[Artist, list[str]]" = WeakKeyDictionary()


def label_points(drawn: Artist | BarContainer, texts: Iterable[str]) -> None:
    """Add a tooltip to every point of a line, scatter or bar chart.

    A scatter plot with thousands of points becomes an image without tooltips in SVG and PDF.
    """
    if isinstance(drawn, BarContainer):
        for bar, text in zip(drawn, texts, strict=True):
            _LABELS[bar] = [text]
    elif isinstance(drawn, PathCollection) and np.shape(drawn.get_offsets())[0] > _MOST_LABELS:
        drawn.set_rasterized(True)
    else:
        _LABELS[drawn] = list(texts)


def tooltips(figure: Figure) -> list[tuple[Bbox, str]]:
    """Return the box (in points) and the text of each labelled point, largest boxes first."""
    boxes = []
    to_points = _POINTS_AN_INCH / figure.dpi
    for axes in figure.axes:
        frame = axes.bbox.padded(1)
        for artist in (*axes.patches, *axes.collections, *axes.lines):
            labels = _LABELS.get(artist)
            if labels is None:
                continue
            for box, text in zip(_boxes(artist, figure.dpi), labels, strict=True):
                if np.isfinite(box.extents).all() and frame.overlaps(box):
                    box = Bbox(np.asarray(Bbox.intersection(frame, box)) * to_points)
                    boxes.append((box, printable(text)))
    return sorted(boxes, key=lambda pair: -round(pair[0].width * pair[0].height))


def _boxes(artist: Artist, dpi: float) -> Iterator[Bbox]:
    if isinstance(artist, Rectangle):
        yield artist.get_window_extent()
        return
    if isinstance(artist, Line2D):
        places = artist.get_transform().transform(artist.get_xydata())
        every, size = artist.get_markevery(), artist.get_markersize()
        if isinstance(every, tuple):
            places = places[every[0] :: every[1]]
    elif isinstance(artist, PathCollection):
        places = artist.get_offset_transform().transform(artist.get_offsets())
        size = math.sqrt(max(artist.get_sizes()))
    else:
        raise TypeError(f"{type(artist).__name__} has no points to label")
    half = max(size, _NARROWEST) / 2 * dpi / _POINTS_AN_INCH
    for x, y in np.asarray(places, dtype=float):
        yield Bbox.from_extents(x - half, y - half, x + half, y + half)


def write_tooltips(svg: bytes, figure: Figure) -> bytes:
    """Add an invisible shape with a title over each labelled point to the SVG of a figure."""
    # Not in the marks themselves: without invisible ones, the n-th need not be the n-th point.
    labels = tooltips(figure)
    if not labels:
        return svg
    height = _POINTS_AN_INCH * figure.get_figheight()
    group = ET.Element("g", {"class": "points", "fill-opacity": "0"})
    for box, text in labels:
        place = {"x": box.x0, "y": height - box.y1, "width": box.width, "height": box.height}
        shape = ET.SubElement(group, "rect", {key: f"{v:.2f}" for key, v in place.items()})
        ET.SubElement(shape, "title").text = text
    head, end, tail = svg.rpartition(b"</svg>")
    added: bytes = ET.tostring(group, encoding="utf-8")
    return head + added + end + tail


def inline_svg(svg: bytes, key: str, title: str) -> tuple[Markup, float]:
    """Return an SVG as an element of a page, ids prefixed by ``key``, and its width in inches."""
    # Labels of others' results occur in comments, and XML forbids control characters.
    root = ET.parse(BytesIO(printable(svg.decode()).encode())).getroot()
    if root.tag != f"{_SVG}svg":
        raise ET.ParseError("no SVG")
    width = float(root.get("width", "0pt").removesuffix("pt")) / _POINTS_AN_INCH
    uses = set()
    for element in root.iter():
        uses.add(element.get(_HREF, "")[1:])
        uses.update(_REFERENCE.findall(" ".join(element.attrib.values())))
    plain = _plain(root, uses, key)
    plain.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": title}
    return Markup(ET.tostring(plain, encoding="unicode")), width


def _plain(element: ET.Element, uses: set[str], key: str) -> ET.Element:
    """Return an element with the parts that a page needs, and its ids prefixed by ``key``."""
    plain = ET.Element(element.tag.removeprefix(_SVG))
    if plain.tag in ("title", "text", "tspan"):
        plain.text = element.text
    for name, value in element.attrib.items():
        if name == "id":
            if value in uses:
                plain.set("id", f"{key}-{value}")
        elif name in (_HREF, "href"):
            if value.startswith("#"):
                plain.set("href", f"#{key}-{value[1:]}")
            elif value.startswith("data:image/png;"):
                plain.set("href", value)
        elif not name.startswith(("on", "{")):
            value = _REFERENCE.sub(rf"url(#{key}-\1)", value)
            if name == "d":
                value = _DIGITS.sub(r"\1", value).replace("\n", "")
            plain.set(name, value)
    for child in element:
        if isinstance(child.tag, str) and child.tag.removeprefix(_SVG) in _ELEMENTS:
            plain.append(_plain(child, uses, key))
    return plain
