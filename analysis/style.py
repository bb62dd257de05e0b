"""One style for every figure: widths of a two-column paper, colour-blind-safe, stable bytes."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from analysis.svg import write_tooltips

COLUMN_IN, TEXT_IN = 3.4, 7.0
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
FORMATS = ("png", "svg", "pdf")

# Seaborn's colour-blind-safe colours, its pale pink and yellow darkened: open marks are thin.
COLORS = tuple(sns.color_palette("colorblind"))
COLORS = (*COLORS[:6], (0.33, 0.15, 0.53), COLORS[7], (0.55, 0.53, 0.0), COLORS[9])

# No date and no version, so that the same results give the same bytes.
_METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def apply() -> None:
    """Set the style; called before a figure is drawn."""
    # Loaded by the first file of a format: once here, and not in each process that draws.
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg  # noqa: F401

    # Reports are made where there is no screen.
    mpl.use("Agg")
    theme()


def theme() -> None:
    """Set the style alone, where a notebook draws in its own way."""
    # A user's own defaults would make other figures of the same results.
    mpl.rcdefaults()
    sns.set_theme(context="paper", style="ticks", palette="colorblind", font_scale=0.85)
    # Without a salt the names inside an SVG are drawn by chance: its bytes would differ each time.
    # Fonts of type 42, since many conferences refuse matplotlib's default, type 3. Without hinting
    # a text is as wide in a file as in the layout, which is computed at another resolution.
    mpl.rcParams.update(
        {
            "svg.hashsalt": "tune-calib",
            "pdf.fonttype": 42,
            "text.hinting": "none",
            "figure.constrained_layout.use": True,
        }
    )


def color(index: int) -> tuple[float, float, float]:
    """Return the colour of the index-th rung or method."""
    red, green, blue = COLORS[index % len(COLORS)]
    return float(red), float(green), float(blue)


CHOSEN = color(3)  # what a search chooses


def marker(index: int) -> str:
    """Return the marker of the index-th rung or method; shifted where the colours begin again."""
    return MARKERS[(index + index // len(COLORS)) % len(MARKERS)]


def plain_ticks(axis: Axis) -> None:
    """Write 2, 5, 10 on a logarithmic axis, where powers of ten would leave it almost bare."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def whole_ticks(axis: Axis) -> None:
    """Write whole numbers alone, on an axis of epochs or of what else is counted."""
    axis.set_major_locator(MaxNLocator(integer=True))


def panels(count: int, columns: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Make a grid of panels as wide as the text, each so many inches high."""
    import matplotlib.pyplot as plt

    rows = -(-count // columns)
    size = (TEXT_IN, height * rows + 0.6)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **options)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, list(axes.flat[:count])


def panel_title(label: str, columns: int) -> str:
    """Break a label into lines that fit the width of a panel."""
    return "\n".join(wrap(label, 112 // columns))


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    """Add a legend below the panels of a figure."""
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=7
    )


def name_points(axis: Axes, names: Sequence[str], points: Sequence[tuple[float, float]]) -> bool:
    """Write names at points; return False, with none written, where they would overlap."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # places are known only then
    point = figure.dpi / 72
    marks = [Bbox.from_bounds(x - 4 * point, y - 4 * point, 8 * point, 8 * point)
             for x, y in axis.transData.transform(points)]  # fmt: skip
    written: list[Annotation] = []
    for name, place, mark in zip(names, points, marks, strict=True):
        taken = [text.get_window_extent() for text in written] + [m for m in marks if m is not mark]
        for y, x in product((4, -4, 0, 11, -11), (6, -6, 0)):  # beside the error bars first
            text = axis.annotate(
                name, place, xytext=(x, y), textcoords="offset points", fontsize=7, color="0.1",
                ha={6: "left", -6: "right", 0: "center"}[x], zorder=20,
                va="center" if y == 0 else "bottom" if y > 0 else "top",
                bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.4},
            )  # fmt: skip
            text.set_in_layout(False)
            box = text.get_window_extent()
            is_inside = axis.bbox.count_contains(box.corners()) == 4
            if (x or y) and is_inside and not box.count_overlaps(taken):
                written.append(text)
                break
            text.remove()
        else:
            for text in written:
                text.remove()
            return False
    return True


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as PNG (200 dpi), SVG with tooltips on its points, and PDF, and close it."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    # The layout is computed once for all formats, which takes as long as drawing one.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for kind in FORMATS:
        path = folder / f"{name}.{kind}"
        path.unlink(missing_ok=True)  # it may be a link to a file elsewhere
        figure.savefig(path, dpi=200, metadata=_METADATA[kind])
        if kind == "svg":
            path.write_bytes(write_tooltips(path.read_bytes(), figure))
    plt.close(figure)
