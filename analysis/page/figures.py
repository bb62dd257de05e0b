"""The figures of a report: every one that its results have is drawn, saved and embedded."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import matplotlib.pyplot as plt
from markupsafe import Markup

from analysis import style
from analysis.figure import Figure
from analysis.page.kept import Kept
from analysis.page.side_by_side import side_by_side
from tune_calib.errors import DamagedFileError, UserError, traced
from tune_calib.paths import Place
from tune_calib.progress import activity
from tune_calib.registry import Registry

R = TypeVar("R")

# A larger SVG (a mark for each of many samples) would make the page slow: the PNG stands for it.
_MAX_SVG_BYTES = 1_000_000
_POINTS_AN_INCH = 72
# Escapes of what ``console.printable`` writes out, behind an even number of backslashes.
_ESCAPED = re.compile(
    r"(?<!\\)((?:\\\\)*)(\\u(?:00[0189][0-9a-f]|007f|061c|200[ef]|202[89a-e]|206[6-9]))"
)
_ABSENT, _DRAWN, _FAILED = range(3)


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        key: its id in the page.
        title: what it shows.
        caption: how to read it.
        source: data URI.
        width: share of the widest figure's width, so that text is equally large in all.
        pointed: what the page knows beyond the picture, as of ``interactive.figure.interactive``;
            nothing for a picture alone.
        files: of its files, without what stands behind the point; relative to the page.
    """

    key: str
    title: str
    caption: str
    source: str
    width: float
    pointed: Mapping[str, Any]
    files: str

    @property
    def legend(self) -> list[dict[str, Any]]:
        """Entries of the legend."""
        found: list[dict[str, Any]] = self._meta.get("legend", [])
        return found

    @property
    def told(self) -> str:
        """Heading of the figure, which the interactive one has as text above it."""
        return str(self._meta.get("told", ""))

    @property
    def is_interactive(self) -> bool:
        """Whether its points tell what they are."""
        return bool(self.pointed.get("data"))

    @property
    def json(self) -> Markup:
        """What is drawn, as the page holds it: no text of it can end the element it stands in."""
        text = json.dumps(dict(self.pointed), separators=(",", ":"))
        # As a reader sees them, and not as the characters that they are.
        text = _ESCAPED.sub(r"\1\\\2", text)
        return Markup(text.replace("<", "\\u003c"))

    @property
    def _meta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pointed.get("layout", {}).get("meta", {})
        return found


@dataclass
class Gallery:
    """What became of the figures of a report.

    Attributes:
        pictures: those that were drawn.
        remarks: a line for each that there is not, and why.
        files: of each figure that was drawn.
    """

    pictures: list[Picture] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    files: dict[Figure[Any], list[Path]] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        """Files of those that were drawn."""
        return [path for paths in self.files.values() for path in paths]


def in_order(registry: Registry[Figure[R]]) -> list[Figure[R]]:
    """The figures of a registry as they stand in a page."""
    return sorted((registry[name] for name in registry), key=lambda f: (f.position, f.name))


def draw_all(
    figures: Sequence[Figure[R]], results: R, folder: Path, kept: Kept | None = None
) -> Gallery:
    """Draw every figure that the results have; one that fails is told, and loses no other.

    Args:
        figures: in the order of the page.
        results: what they are drawn from.
        folder: for their files.
        kept: the report before: of a figure that would be the same again, the files stay.
    """
    style.apply()
    left = [f for f in figures if kept is None or not kept.holds(f, _paths(f, folder))]
    failures: dict[str, str] = {}

    def draw(number: int) -> int:
        return _draw(left[number], results, folder, failures)

    def tell(done: int) -> None:
        activity("drawing figures", done, len(left))

    answers = side_by_side(len(left), draw, tell)
    became = {figure.name: answers[number] for number, figure in enumerate(left)}
    gallery = Gallery()
    for figure in figures:
        if became.get(figure.name) == _FAILED and figure.name not in failures:
            _draw(figure, results, folder, failures)  # it failed in a copy, which told no error
        if figure.name not in failures:
            with _failing_alone(figure, failures), _closing():
                _hang(figure, results, folder, gallery, became.get(figure.name, _DRAWN))
        if figure.name in failures:
            gallery.remarks.append(f"{figure.name}: FAILED, {failures[figure.name]}")
    return gallery


def _draw(figure: Figure[R], results: R, folder: Path, failures: dict[str, str]) -> int:
    """Write the files of a figure, if it is one of these results."""
    with _failing_alone(figure, failures), _closing():
        drawing = figure.draw(results)
        if drawing is None:
            return _ABSENT
        style.save(drawing, folder, figure.name)
        return _DRAWN
    return _FAILED


def _hang(figure: Figure[R], results: R, folder: Path, gallery: Gallery, became: int) -> None:
    """Put a figure into the gallery with what it tells, or why there is none."""
    if became == _ABSENT:
        why = figure.why_absent(results)
        gallery.remarks += [f"{figure.name}: not drawn, {why}"] if why else []
        return
    gallery.pictures.append(hung(figure, results, folder, "figures", figure.name))
    gallery.files[figure] = _paths(figure, folder)


def hung(figure: Figure[R], results: R, folder: Place, of_page: str, key: str) -> Picture:
    """A figure that was drawn, as a page embeds it.

    Args:
        figure: the figure.
        results: what it was drawn from.
        folder: of its files.
        of_page: the same folder, relative to the page.
        key: its id in the page.
    """
    name, caption = figure.name, figure.told(results)
    pointed, files = _pointed(folder, name), f"{of_page}/{name}"
    return Picture(key, figure.title, caption, *_image(folder, name), pointed, files)


@contextmanager
def _failing_alone(figure: Figure[R], failures: dict[str, str]) -> Iterator[None]:
    # A figure may be a user's own, and rows may be odd: any error is one of this figure alone.
    try:
        yield
    except (DamagedFileError, OSError):
        raise  # of the folder and the disk, not of the figure: the user has to mend it
    except Exception as error:
        failures[figure.name] = _told(error)


def _paths(figure: Figure[R], folder: Path) -> list[Path]:
    """The files of a figure."""
    pictures = [folder / f"{figure.name}.{kind}" for kind in style.FORMATS]
    pointed = folder / f"{figure.name}.json"  # of one that tells no more than its picture, none
    return [*pictures, pointed] if pointed.exists() else pictures


@contextmanager
def _closing() -> Iterator[None]:
    """Close what was begun and not finished, since pyplot keeps every figure that is open."""
    before = set(plt.get_fignums())
    try:
        yield
    finally:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)


def _told(error: Exception) -> str:
    """An error in one line; of one that nobody meant to be read, where it arose too."""
    found = traced(error, lambda path: "site-packages" not in path, lambda path: Path(path).name)
    return found.said if isinstance(error, UserError) else str(found)


def _pointed(folder: Place, name: str) -> Mapping[str, Any]:
    path = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _image(folder: Place, name: str) -> tuple[str, float]:
    """Data URI of a figure, and its share of the widest width."""
    content, kind = (folder / f"{name}.svg").read_bytes(), "svg+xml"
    found = re.search(rb'width="([\d.]+)pt"', content)
    share = float(found[1]) / (_POINTS_AN_INCH * style.TEXT_IN) if found else 1.0
    if len(content) > _MAX_SVG_BYTES:
        content, kind = (folder / f"{name}.png").read_bytes(), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}", round(share, 3)
