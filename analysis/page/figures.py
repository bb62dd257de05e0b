"""Draw and save the figures of a report, and prepare them for its page."""

import base64
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import Figure
from analysis.svg import inline_svg
from tune_calib.errors import DamagedFileError, FailedFigureWarning, UserError, locate_error
from tune_calib.paths import AnyPath
from tune_calib.progress import report_progress
from tune_calib.registry import Registry

# A larger SVG, with a mark for each of many samples, would make the page slow: a PNG replaces it.
_MAX_SVG_BYTES = 1_000_000


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    key: str  # prefix of its ids
    title: str
    caption: str
    image: Markup
    width: float  # in widths of the widest figure, so that text has the same size in all
    files: str  # path of its files from the page, without suffix


@dataclass
class Gallery:
    """The figures of a report, and a remark on each absent figure."""

    pictures: list[Picture] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    has_failed: bool = False  # to draw a figure


def in_order(registry: Registry[Figure]) -> list[Figure]:
    """Return the figures of a registry in the order of the page."""
    return sorted(registry.values(), key=lambda f: (f.position, f.name))


@style.applied()
def draw_all(figures: Sequence[Figure], results: Any, folder: Path) -> Gallery:
    """Draw every figure that the results allow; one that fails does not affect the others."""
    drawn = _draw_in_copies(len(figures), lambda number: _draw(figures[number], results, folder))
    gallery = Gallery()
    for number, figure in enumerate(figures):
        try:
            if number not in drawn:
                report_progress("drawing figures", number, len(figures))
                drawn[number] = _draw(figure, results, folder)
            if drawn[number]:
                gallery.pictures.append(picture_of(figure, results, folder, "figures", figure.name))
            elif why := figure.why_absent(results):
                gallery.remarks.append(f"{figure.name}: not drawn, {why}")
        except (DamagedFileError, OSError):
            raise  # an error of the folder or disk, which the user has to repair
        except Exception as error:
            # In one line, with the place in the code unless the error is meant for users.
            described = locate_error(
                error, lambda path: "site-packages" not in path, lambda path: Path(path).name
            )
            why = described.text if isinstance(error, UserError) else str(described)
            gallery.remarks.append(f"{figure.name}: FAILED, {why}")
            gallery.has_failed = True
            warnings.warn(gallery.remarks[-1], FailedFigureWarning, stacklevel=2)
    return gallery


def _draw(figure: Figure, results: Any, folder: Path) -> bool:
    """Write the files of a figure; return False if there is nothing to draw."""
    drawing = figure.draw(results)
    if drawing is not None:
        style.save(drawing, folder, figure.name)
    return drawing is not None


def _draw_in_copies(count: int, draw: Callable[[int], bool]) -> dict[int, bool]:
    """Draw figures in forked processes if that is safe; return whether each was drawn."""
    if sys.platform != "linux":
        return {}
    workers = min(count, len(os.sched_getaffinity(0)))
    # A forked process could wait forever for a lock that another thread held. The program's own
    # thread only shows progress, which the processes do not.
    threads = {t for t in threading.enumerate() if not t.name.startswith("tune-calib")}
    is_alone = threads == {threading.main_thread()} and not {"torch", "ray"} & sys.modules.keys()
    if workers < 2 or not is_alone:
        return {}
    is_drawn = {}
    with ProcessPoolExecutor(workers, get_context("fork"), _start_copy, (draw,)) as pool:
        numbers = {pool.submit(_draw_in_copy, number): number for number in range(count)}
        for done, future in enumerate(as_completed(numbers)):
            report_progress("drawing figures", done, count)
            with suppress(Exception):
                is_drawn[numbers[future]] = future.result()
    return is_drawn


def _start_copy(draw: Callable[[int], bool]) -> None:
    global _draw_number  # inherited, so that it need not be pickled
    _draw_number = draw
    # Another thread may have held the lock of a stream, which nobody here would release.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


_draw_number: Callable[[int], bool]


def _draw_in_copy(number: int) -> bool:
    return _draw_number(number)


def picture_of(figure: Figure, results: Any, folder: AnyPath, of_page: str, key: str) -> Picture:
    """Read a drawn figure for a page; ``of_page`` is its folder relative to the page."""
    path = folder / f"{figure.name}.svg"
    try:
        image, width = inline_svg(path.read_bytes(), key, figure.title)
    except (ParseError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is not an SVG file; write the report again") from error
    if len(image) > _MAX_SVG_BYTES:
        image = png_image((folder / f"{figure.name}.png").read_bytes(), figure.title)
    share = round(width / style.TEXT_IN, 3)
    files = f"{of_page}/{figure.name}"
    return Picture(key, figure.title, figure.full_caption(results), image, share, files)


def draw_in_notebook(figure: Figure, results: Any) -> Drawing:
    """Draw a figure of a report without changing the style and backend of a notebook."""
    with style.applied():
        drawing = figure.draw(results)
    if drawing is not None:
        return drawing
    why = figure.why_absent(results) or "these results have nothing to draw"
    raise UserError(f"{figure.name}: not drawn, {why}")


def png_image(content: bytes, alt: str, width: int | None = None) -> Markup:
    """Return an ``img`` element that contains a PNG, ``width`` CSS pixels wide."""
    size = Markup(' width="{}"').format(width) if width else ""
    data = base64.b64encode(content).decode()
    return Markup('<img alt="{}"{} src="data:image/png;base64,{}">').format(alt, size, data)
