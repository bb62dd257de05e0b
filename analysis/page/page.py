"""The report as one page that opens from disk: nothing in it is fetched from elsewhere.

What the results are of, the page does not know: sections, tables and figures are given to it.
"""

import base64
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.page.figures import Picture
from analysis.tables.render import marked
from analysis.tables.table import Table
from tune_calib.console import printable


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own."""

    key: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Link:
    """Another page that belongs to this one; ``href`` is relative to the folder of this one."""

    text: str
    href: str


@dataclass(frozen=True)
class Step:
    """One step of how to reproduce the results."""

    text: str
    command: str


def render(
    *,
    title: str,
    setting: str,
    regime: str,
    state: str,
    troubles: Sequence[str],
    sections: Sequence[Section],
    steps: Sequence[Step],
    files: Sequence[str],
    links: Sequence[Link] = (),
) -> str:
    """The page as HTML; the same results give the same text, wherever they lie.

    Args:
        title: its heading.
        setting: under which the results were made, without a full stop.
        regime: of the networks beneath the results, without a full stop.
        state: whether they are complete.
        troubles: a line for each way in which they are not.
        sections: its parts; those with nothing in them are left out.
        steps: how to reproduce the results.
        files: paths of all files beside the page.
        links: to the pages that belong to this one.
    """
    environment = Environment(
        loader=PackageLoader("analysis.page"),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name is an error, not an empty text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_written,
    )
    environment.filters["marked"] = marked
    environment.filters["href"] = _href
    is_interactive = any(each.is_interactive for part in sections for each in part.figures)
    names = ["report.js", *(["figures.js"] if is_interactive else [])]
    script = "\n".join(environment.get_template(name).render() for name in names)
    return environment.get_template("report.html").render(
        title=title,
        setting=setting,
        regime=regime,
        state=state,
        troubles=troubles,
        sections=[part for part in sections if part.texts or part.tables or part.figures],
        steps=steps,
        files=files,
        links=links,
        library=plotly_js() if is_interactive else "",
        script=Markup(script),
        # Only these scripts run: not one that some text of the results could smuggle in.
        digests=[_digest(script), *([plotly_digest()] if is_interactive else [])],
    )


def _written(value: Any) -> Any:
    """Write out the control characters of what stands in the page."""
    if isinstance(value, Markup):
        return Markup(printable(value))
    return printable(value) if isinstance(value, str) else value


def _href(path: str) -> str:
    """Return the URL of a file by its path relative to the page, whatever its name holds."""
    return quote(path, errors="surrogateescape").lstrip("/")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def plotly_js() -> str:
    """``plotly.min.js``, packed by gzip and written in base 64: two megabytes, not five."""
    # No time in the header: the same results give the same page.
    return base64.b64encode(gzip.compress(_script(), mtime=0)).decode()


@cache
def plotly_digest() -> str:
    """Return the SHA-256 of ``plotly.min.js`` in base 64, by which a page allows it to run."""
    return base64.b64encode(hashlib.sha256(_script()).digest()).decode()


def _script() -> bytes:
    return (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
