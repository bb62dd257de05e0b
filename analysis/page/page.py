"""The report as one page that opens from disk: nothing in it is fetched from elsewhere."""

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from analysis import style
from analysis.compare.significance import Verdict
from analysis.ladder import page_tables
from analysis.ladder.captions import captions_of
from analysis.ladder.page_tables import Table
from analysis.load import Sweep
from analysis.tidy import complaints

# A larger SVG (a mark for each of many samples) would make the page slow: the PNG stands for it.
_MAX_SVG_BYTES = 1_000_000
_POINTS_AN_INCH = 72


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        key: name of its files.
        title: what it shows.
        caption: how to read it.
        source: data URI.
        width: share of the widest figure's width, so that text is equally large in all.
    """

    key: str
    title: str
    caption: str
    source: str
    width: float


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own."""

    key: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Step:
    """One step of how to reproduce the results."""

    text: str
    command: str


@dataclass(frozen=True, eq=False)
class Report:
    """What the page shows.

    Attributes:
        sweep: the results.
        folder: of the sweep, with the figures that were drawn.
        written: every other file of the report.
        statistics: as of ``samples.sample_statistics``.
        intervals: as of ``resampling.over_samples``.
        verdicts: as of ``significance.for_report``.
        undrawn: a line for each figure that there is not, and why.
        options: of ``tune-calib report``, as given.
    """

    sweep: Sweep
    folder: Path
    written: Sequence[Path]
    statistics: pd.DataFrame
    intervals: pd.DataFrame
    verdicts: Sequence[Verdict] = ()
    undrawn: Sequence[str] = ()
    options: Sequence[str] = field(default_factory=tuple)


def render(report: Report) -> str:
    """The page as HTML; the same results give the same text, wherever they lie."""
    manifest = report.sweep.manifest
    return fill(
        title=manifest.title,
        setting=manifest.setting,
        state=_state(report.sweep),
        troubles=complaints(report.sweep),
        sections=_sections(report),
        steps=steps(report.sweep.trials, manifest.command, report.options),
        files=[path.relative_to(report.folder).as_posix() for path in report.written],
    )


def fill(
    *,
    title: str,
    setting: str,
    state: str,
    troubles: Sequence[str],
    sections: Sequence[Section],
    steps: Sequence[Step],
    files: Sequence[str],
) -> str:
    """Fill the template of the page.

    Args:
        title: its heading.
        setting: under which the results were made, without a full stop.
        state: whether they are complete.
        troubles: a line for each way in which they are not.
        sections: its parts; those with nothing in them are left out.
        steps: how to reproduce the results.
        files: paths of all files beside the page.
    """
    environment = Environment(
        loader=PackageLoader("analysis.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html").render(
        title=title,
        setting=setting,
        state=state,
        troubles=troubles,
        sections=[part for part in sections if part.texts or part.tables or part.figures],
        steps=steps,
        files=files,
    )


def _state(sweep: Sweep) -> str:
    counts = sweep.counts()
    planned = len(sweep.manifest.planned)
    if set(counts) == {"done"}:
        return f"Complete: all {planned} planned trials are done."
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Not every trial has numbers: of {planned} planned, {told}."


def _sections(report: Report) -> list[Section]:
    sweep, tables = report.sweep, page_tables
    captions = captions_of(sweep, report.statistics, report.verdicts)
    figures = figures_of(report.written, captions)
    return [
        Section("results", "Results", tables=[tables.ladder(sweep), *tables.recipes(sweep)]),
        Section("figures", "Figures", texts=report.undrawn, figures=figures),
        Section("significance", "Significance", tables=tables.significance(report.verdicts)),
        Section(
            "single-samples",
            "Single samples",
            tables=tables.single_samples(sweep, report.statistics),
        ),
        Section(
            "plan", "Plan and what was done", tables=[tables.plan(sweep), *tables.unfinished(sweep)]
        ),
        Section(
            "trials", "Trials", tables=[tables.trials(sweep), *tables.intervals(report.intervals)]
        ),
        Section("settings", "Settings", tables=tables.rung_settings(sweep)),
        Section("environment", "Environment", tables=tables.environment(sweep.trials)),
    ]


def figures_of(written: Sequence[Path], captions: Mapping[str, tuple[str, str]]) -> list[Figure]:
    """The figures that were drawn, in the order of their captions.

    Args:
        written: every file of the report.
        captions: title and how to read it, by name of a figure's files.
    """
    drawn = {path.stem: path for path in written if path.suffix == ".svg"}
    order = [*(key for key in captions if key in drawn), *(k for k in drawn if k not in captions)]
    found = []
    for key in order:
        title, caption = captions.get(key, (key.replace("_", " "), ""))
        found.append(Figure(key, title, caption, *_image(drawn[key])))
    return found


def _image(svg: Path) -> tuple[str, float]:
    """Data URI of a figure, and its share of the widest width."""
    content, kind = svg.read_bytes(), "svg+xml"
    found = re.search(rb'width="([\d.]+)pt"', content)
    share = float(found[1]) / (_POINTS_AN_INCH * style.TEXT_IN) if found else 1.0
    if len(content) > _MAX_SVG_BYTES:
        content, kind = svg.with_suffix(".png").read_bytes(), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}", round(share, 3)


def steps(trials: pd.DataFrame, command: str, options: Sequence[str]) -> list[Step]:
    """How to reproduce results.

    Args:
        trials: one row a trial, with ``git_revision`` where it was recorded.
        command: that ran them.
        options: of ``tune-calib report``, as given.
    """
    revisions = trials.reindex(columns=["git_revision"])["git_revision"].dropna().unique()
    found = []
    if len(revisions):
        text = "Check the program out as it was and install the versions that it pins."
        if len(revisions) > 1:
            text += " The trials ran at several revisions."
        if any(revision.endswith("+") for revision in revisions):
            text += " It had changes that were not committed and so are not in the checkout."
        checkout = [f"git checkout {revision.rstrip('+')}" for revision in revisions]
        install = "pip install -c constraints.txt -e ."
        found.append(Step(text, "\n".join([*checkout, install])))
    text = "Run the trials; paths are those of the machine that ran them. What is done stays."
    found.append(Step(text, command))
    again = shlex.join(["tune-calib", "report", "DIR", *options])
    found.append(Step("Make this page again from the folder of the results.", again))
    return found
