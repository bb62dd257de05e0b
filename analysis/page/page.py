"""Draw the figures of a report, and render it as one self-contained HTML page."""

import base64
import hashlib
import json
import shlex
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import Figure
from analysis.tables.render import marked
from analysis.tables.table import Table
from analysis.text import Cell
from tune_calib.console import Part, Prose, printable
from tune_calib.errors import DamagedFileError, FailedFigureWarning, UserError, locate_error
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.progress import report_progress
from tune_calib.registry import Registry

PAGE = "report.html"
_REVISION_DIGITS = 8


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


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    key: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.texts or self.figures or any(table.records for table in self.tables))


@dataclass(frozen=True, kw_only=True)
class Page:
    """The contents of a page; equal results give equal text in any folder."""

    title: str
    setting: str
    network_check: str
    state: str
    troubles: Sequence[str]
    sections: Sequence[Section]  # empty sections and tables are left out
    steps: Mapping[str, str]  # how to reproduce the results: commands by what they do
    files: Sequence[str]  # paths relative to the page
    links: Mapping[str, str] = field(default_factory=dict)  # paths relative to the page, by text
    lead: str = ""  # the sentence on the result
    details: str = ""  # the full settings, which a reader unfolds

    def render(self) -> str:
        templates = _load_templates()
        script = templates.get_template("report.js").render()
        # Only this script may run, so that no text of the results can inject one.
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        sections = [section for section in self.sections if not section.is_empty]
        parts = {**vars(self), "sections": sections, "script": Markup(script), "digest": digest}
        return templates.get_template("report.html").render(parts)


@cache
def _load_templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("analysis.page"),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name is an error, not an empty string
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_written,
    )
    templates.filters["marked"] = marked
    templates.filters["href"] = lambda path: quote(path, errors="surrogateescape").lstrip("/")
    return templates


def _written(value: Any) -> Any:
    if isinstance(value, str):  # also of Markup, which stays Markup
        return type(value)(printable(value))
    return value


def write_folder(
    out: AnyPath, folder: Path, texts: Mapping[str, str], figures: Sequence[Figure], results: Any,
    make_page: Callable[[Gallery, Sequence[str]], str],
) -> tuple[list[str], list[Part]]:  # fmt: skip
    """Write a report of ``out`` into a folder; return remarks on figures, and lines on files."""
    for name, text in texts.items():
        atomic_write(folder / "tables" / name, printable(text).encode())
    # After the tables, so that no error of a figure can prevent them.
    gallery = draw_all(figures, results, folder / "figures")
    files = [f"tables/{name}" for name in texts]
    for picture in gallery.pictures:
        files += [f"figures/{picture.name}.{kind}" for kind in style.FORMATS]
    # Last, since it embeds the figures and links to every other file.
    atomic_write(folder / PAGE, make_page(gallery, files).encode())
    lines: list[Part] = [f"page     {out / PAGE}"]
    for part, paths in groupby(map(PurePosixPath, files), key=attrgetter("parent.name")):
        stems = dict.fromkeys(path.stem for path in paths)
        lines.append(Prose(f"{part:8} {out / part}: {', '.join(stems)}"))
    return gallery.remarks, lines


def environment(rows: pd.DataFrame) -> Table:
    counts_by_name = defaultdict[str, Counter[Any]](Counter)
    facts = ("device", "threads", "processor", "gpu", "instruction_set", "execution")
    for name in (*facts, "git_revision"):
        head = "threads per trial" if name == "threads" else name.replace("_", " ")
        counts_by_name[head].update(rows.reindex(columns=[name])[name].dropna())
    for text in rows.reindex(columns=["versions"])["versions"].dropna():
        for name, version in json.loads(text).items():
            counts_by_name[name][version] += 1
    records = []
    for name, counts in counts_by_name.items():
        for value, count in counts.most_common():
            records.append({"item": Cell(name), "value": Cell.of(value), "trials": Cell.of(count)})
    note = "As recorded by each trial; a + after a revision means uncommitted changes."
    return Table("versions", note, records)


def describe_programs(rows: pd.DataFrame) -> list[str]:
    recorded = rows.reindex(columns=["versions", "git_revision"]).astype(object)
    counts = Counter[str]()
    for versions, revision in recorded.itertuples(index=False, name=None):
        names = []
        if isinstance(versions, str):
            names.append(json.loads(versions).get("tune-calib"))
        if isinstance(revision, str):
            names.append(revision.rstrip("+")[:_REVISION_DIGITS])
            names += ["modified"] * revision.endswith("+")
        counts[" ".join(filter(None, names)) or "unknown"] += 1
    if len(counts) < 2:
        return []
    programs = ", ".join(f"{name} ({count})" for name, count in counts.items())
    return [f"Trials of {len(counts)} versions of the program: {programs}."]


def steps(rows: pd.DataFrame, command: str, options: Sequence[str]) -> dict[str, str]:
    revisions = rows["git_revision"].dropna().unique()
    commands = {}
    if len(revisions):
        several = " The trials ran at several revisions." if len(revisions) > 1 else ""
        text = f"Check out the program and install the pinned versions.{several}"
        checkout = [f"git checkout {revision.rstrip('+')}" for revision in revisions]
        commands[text] = "\n".join([*checkout, "pip install -c constraints.txt -e ."])
    text = "Run the trials; finished ones are skipped. Paths are those of the original machine."
    report = shlex.join(["tune-calib", "report", "DIR", *options])
    return {**commands, text: command, "Write this page again from the results.": report}


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
            why = locate_error(error)
            if isinstance(error, UserError):
                why = " ".join(str(error).split())
            gallery.remarks.append(f"{figure.name}: FAILED, {why}")
            warnings.warn(gallery.remarks[-1], FailedFigureWarning, stacklevel=2)
    return gallery


def draw_in_notebook(figure: Figure, results: Any) -> Drawing:
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
