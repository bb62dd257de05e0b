"""Draw and save the figures of a report, and prepare them for its page."""

import base64
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import Figure
from tune_calib.errors import DamagedFileError, FailedFigureWarning, UserError, locate_error
from tune_calib.progress import report_progress
from tune_calib.registry import Registry


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    name: str
    title: str
    caption: str
    image: Markup
    width: float  # in widths of the widest figure, so that text has the same size in all


@dataclass
class Gallery:
    """The figures of a report, and a remark on each absent figure."""

    pictures: list[Picture] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def in_order(registry: Registry[Figure]) -> list[Figure]:
    return sorted(registry.values(), key=lambda f: (f.position, f.name))


@style.applied()
def draw_all(figures: Sequence[Figure], results: Any, folder: Path) -> Gallery:
    """Draw every figure that the results allow; one that fails does not affect the others."""
    gallery = Gallery()
    for number, figure in enumerate(figures):
        report_progress("drawing figures", number, len(figures))
        try:
            drawing = figure.draw(results)
            if drawing is not None:
                style.save(drawing, folder, figure.name)
                image = png_image((folder / f"{figure.name}.png").read_bytes(), figure.title)
                share = round(drawing.get_figwidth() / style.TEXT_IN, 3)
                caption = figure.full_caption(results)
                picture = Picture(figure.name, figure.title, caption, image, share)
                gallery.pictures.append(picture)
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
            warnings.warn(gallery.remarks[-1], FailedFigureWarning, stacklevel=2)
    return gallery


def draw_in_notebook(figure: Figure, results: Any) -> Drawing:
    """Draw a figure of a report without changing the style and backend of a notebook."""
    with style.applied():
        drawing = figure.draw(results)
    if drawing is not None:
        return drawing
    why = figure.why_absent(results) or "these results have nothing to draw"
    raise UserError(f"{figure.name}: not drawn, {why}")


def png_image(content: bytes, alt: str, width: int | None = None) -> Markup:
    size = Markup(' width="{}"').format(width) if width else ""
    data = base64.b64encode(content).decode()
    return Markup('<img alt="{}"{} src="data:image/png;base64,{}">').format(alt, size, data)
