"""The style of all figures: widths of a two-column paper, colour-blind-safe, reproducible bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

COLUMN_IN, TEXT_IN = 3.4, 7.0
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
FORMATS = ("png", "pdf")  # for pages and for papers

# Seaborn's colour-blind-safe colours, with pale pink and yellow darkened for thin open marks.
COLORS = list(map(tuple, sns.color_palette("colorblind")))
COLORS[6], COLORS[8] = (0.33, 0.15, 0.53), (0.55, 0.53, 0.0)

# No date and no version, so that the same results give the same bytes.
_METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextmanager
def applied() -> Iterator[None]:
    """Set the style in the block; the backend and style of a notebook's own figures stay."""
    # Loaded before anything is set: a backend of notebooks changes pyplot as it is loaded.
    with suppress(ImportError):  # of one for which this machine has no screen
        plt.draw_if_interactive()  # type: ignore[no-untyped-call]
    open_figures = set(plt.get_fignums())
    with mpl.rc_context(), plt.ioff():
        theme()
        try:
            yield
        finally:
            # Of plug-ins: pyplot keeps all open figures, and a notebook would show them.
            for number in set(plt.get_fignums()) - open_figures:
                plt.close(number)


def theme() -> None:
    # A user's defaults would change the figures.
    mpl.rcdefaults()
    sns.set_theme(
        context="paper", style="ticks", palette="colorblind", font_scale=0.85, color_codes=False
    )
    # Many conferences refuse matplotlib's default fonts of type 3. Without hinting, text is as wide
    # in a file as in the layout, which is computed at another resolution.
    mpl.rcParams.update({"pdf.fonttype": 42, "text.hinting": "none"})
    mpl.rcParams["figure.constrained_layout.use"] = True


def color(index: int) -> tuple[float, float, float]:
    red, green, blue = COLORS[index % len(COLORS)]
    return float(red), float(green), float(blue)


CHOSEN = color(3)  # of the selected trial of a search


def look(index: int) -> dict[str, Any]:
    """Return the colour and the marker of the index-th rung or method."""
    marker = MARKERS[(index + index // len(COLORS)) % len(MARKERS)]
    return {"color": color(index), "marker": marker}


def plain_ticks(axis: Axis) -> None:
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def whole_ticks(axis: Axis) -> None:
    axis.set_major_locator(MaxNLocator(integer=True))


def subplots(*grid: int, figsize: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """Create a figure as ``pyplot.subplots`` does, but pyplot neither keeps nor shows it."""
    figure = Figure(figsize=figsize)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*grid, **options)


def panels(count: int, columns: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    rows = -(-count // columns)
    size = (TEXT_IN, height * rows + 0.6)
    figure, axes = subplots(rows, columns, figsize=size, squeeze=False, **options)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, list(axes.flat[:count])


def columns_of(count: int) -> int:
    if count in (5, 6):
        return 3
    return min(4, max(2, count))


def panel_title(label: str, columns: int) -> str:
    return "\n".join(wrap(label, 112 // columns))


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=7
    )


def save(figure: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Computing the layout takes as long as drawing a format, so it is computed once.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for kind in FORMATS:
        figure.savefig(folder / f"{name}.{kind}", dpi=200, metadata=_METADATA[kind])
