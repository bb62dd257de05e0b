"""Results in Python: data frames, tables, figures, and output in notebooks."""

import contextlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.compare.benchmark import benchmark
from analysis.compare.benchmark import view as benchmark_view
from analysis.experiment_file.overview import write_overview
from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.ladder import tables
from analysis.ladder.files import import_tables, load_run
from analysis.ladder.results import LadderResults
from analysis.ladder.tables import weak_heads
from analysis.load import Run, load
from analysis.page.page import draw_in_notebook, png_image
from analysis.report import write_report, write_search_report
from analysis.search import tables as search_tables
from analysis.search.files import describe
from analysis.search.load import SearchResults, is_complete, load_search
from analysis.tables.render import html, markdown
from analysis.tables.table import Table
from analysis.text import format_counts
from analysis.tidy import as_columns
from analysis.tidy import settings as read_settings
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import describe_unloaded, read_plugins
from tune_calib.spec import plugins

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Words = str | Sequence[str]
_WIDTH = 640  # width of a figure in a notebook, in CSS pixels


def as_tuple(words: Words) -> tuple[str, ...]:
    """Return an argument that takes one string or several as a tuple."""
    return (words,) if isinstance(words, str) else tuple(words)


def _main_table(run: Run) -> Table:
    if run.has_imports:
        return benchmark_view(benchmark([run.out])).tables[0]
    return tables.ladder(run)


@dataclass(frozen=True, eq=False, repr=False)
class _Opened(ABC):
    out: AnyPath
    crashed: tuple[str, ...] = ()

    @property
    @abstractmethod
    def rows(self) -> pd.DataFrame:
        """Return one row per trial that ended."""

    @property
    def settings(self) -> pd.DataFrame:
        """Return the settings of ``rows``, with a column for each ``slot.key``.

        A column of numbers and other values, such as ``null``, has the type text.
        """
        return as_columns(read_settings(self.rows))


@dataclass(frozen=True, eq=False, repr=False)
class OpenRun(_Opened):
    """The results of a ladder or a comparison, read from its folder when they are used.

    Attributes:
        out: Folder of the run.
        crashed: A line for each trial that crashed in this call.
        notes: Further remarks on the results.
        stopped: What ``max_hours`` left undone, in words; empty if nothing.
    """

    notes: str = ""
    stopped: str = ""

    @property
    def rows(self) -> pd.DataFrame:
        """Return one row per trial that ended, with the columns in docs/pages/results-on-disk.md.

        Metrics are fractions, e.g. ``rows["test/ece"]``.
        """
        return load(self.out).trials

    @property
    def remarks(self) -> list[str]:
        """Return a line for each rung with heads far less accurate than their networks.

        These trials have the flag ``head_below_network`` in ``rows["flags"]``.
        """
        return weak_heads(load(self.out))

    def table(
        self,
        metric: str | Sequence[str] = (),
        *,
        regime: bool = False,
        intervals: bool = False,
        published: str | None = None,
    ) -> str:
        """Return the table in Markdown: mean and spread of each rung on test, in percent.

        Args:
            metric: Metrics of the table; the usual ones if empty.
            regime: Whether to add columns about the fit of the networks.
            intervals: Whether to show intervals over test samples instead of the spread over seeds.
            published: A paper's table to compare with.

        Raises:
            UserError: The results lack what is requested.
        """
        metrics = as_tuple(metric)
        with with_plugins_of(self.out):
            run = load_run(self.out, published, regime, metrics=metrics, intervals=intervals)
            of_imports = import_tables(run) if run.has_imports and intervals else []
            return "\n\n".join(map(markdown, of_imports or [_main_table(run)])) + "\n"

    def figure(self, name: str = "reliability") -> "Figure":
        """Draw a figure of the report with matplotlib.

        Args:
            name: A name from ``tune-calib list ladder-figures``.

        Raises:
            UserError: There is no such figure, or nothing to draw.
        """
        with with_plugins_of(self.out):
            run = load(self.out)
            results: Any = LadderResults(run)
            if run.has_imports:
                if name != "critical_difference":
                    raise UserError(f"no {name} over several imports; use critical_difference")
                results = benchmark([self.out])
            return draw_in_notebook(LADDER_FIGURES[name], results)

    def report(self) -> AnyPath:
        """Write tables, figures and the page into the folder; return the path of the page."""
        with with_plugins_of(self.out):
            write_report(self.out)
        return self.out / "report.html"

    def __str__(self) -> str:
        """Return the table as a terminal shows it."""
        with with_plugins_of(self.out):
            return "\n\n".join(filter(None, [str(_main_table(load(self.out))), self.notes]))

    def __repr__(self) -> str:
        """Return the folder and the status of its trials."""
        return f"<OpenRun {self.out}: {format_counts(load(self.out).counts())}>"

    def _repr_html_(self) -> str:
        with with_plugins_of(self.out):
            parts = [html(_main_table(load(self.out)).without_blank())]
        with contextlib.suppress(UserError):  # results without bins
            content = io.BytesIO()
            self.figure().savefig(content, format="png", dpi=150)
            parts.append(png_image(content.getvalue(), "reliability diagrams", _WIDTH))
        return "\n".join([*parts, *_preformatted(self.notes)])


@dataclass(frozen=True, eq=False, repr=False)
class OpenSearch(_Opened):
    """The results of a search on ``select``, read from its folder when they are used.

    Attributes:
        out: Folder of the search.
        crashed: A line for each trial that crashed in this call.
        study_storage: URL of its study, if that is a database.
        stopped: What ``max_hours`` left undone, in words; empty if nothing.
    """

    study_storage: str | None = None
    stopped: str = ""

    @property
    def rows(self) -> pd.DataFrame:
        """Return one row per trial; metrics are fractions on ``select``."""
        return self._results().trials

    @property
    def suggestions(self) -> pd.DataFrame:
        """Return one row per suggestion: number, status, settings, ``mean`` of the first metric.

        A setting with numbers and other values, such as ``null``, has the type text.
        """
        return as_columns(self._results().table())

    @property
    def chosen(self) -> dict[str, Any] | None:
        """Return the settings selected by the search's rule, as ``set`` takes them.

        Return None if no suggestion keeps the accuracy within the guard.
        """
        return self._results().chosen or None

    @property
    def fixed(self) -> dict[str, Any]:
        """Return the requested settings that were not searched, as ``set`` takes them."""
        return self._results().fixed

    @property
    def command(self) -> str | None:
        """Return the command that retrains the selected trial; None if no trial was selected."""
        return self._results().outcome.command

    def table(self) -> str:
        """Return a table of baseline, defaults and the best suggestions in Markdown."""
        return f"{markdown(search_tables.best(self._results()))}\n"

    def figure(
        self,
        name: str = "history",
        *,
        settings: str | Sequence[str] = (),
        metric: str | None = None,
    ) -> "Figure":
        """Draw a figure of the report with matplotlib.

        Args:
            name: A name from ``tune-calib list search-figures``.
            settings: Searched settings to show in ``sensitivity``, ``parallel`` and ``heat_map``
                (of two, the first one is on the horizontal axis), e.g. ``["gamma", "tau0"]``; the
                most important ones with at least two values if empty.
            metric: A metric recorded on ``select``; the first one of the objective if None.

        Raises:
            UserError: There is no such figure, setting or metric, or nothing to draw.
        """
        with with_plugins_of(self.out):
            figure = SEARCH_FIGURES[name]
            for option, value in {"settings": settings, "metric": metric}.items():
                if value and option not in figure.takes:
                    raise UserError(f"figure {name} takes no {option}; leave it out")
            return draw_in_notebook(figure, self._results().focus(as_tuple(settings), metric))

    def report(self) -> AnyPath:
        """Write tables, figures and the page into the folder; return the path of the page."""
        with with_plugins_of(self.out):
            self._results()
            write_search_report(self.out)
        return self.out / "report.html"

    def evaluate(
        self,
        seeds: int = 5,
        *,
        extend: bool = False,
        shift: str | Sequence[str] = (),
        bootstrap: int = 0,
    ) -> OpenRun:
        """Evaluate the selected trial and the baseline on the test split with fresh seeds.

        Args:
            seeds: Number of fresh seeds of networks and heads.
            extend: Whether to evaluate test again with more seeds than before.
            shift: Shift sets to evaluate the trials on.
            bootstrap: Number of resamples of the test samples, for intervals.

        Raises:
            UserError: The search selected no trial, or test was read for another trial or other
                seeds.
        """
        from tune_calib import evaluate

        options: dict[str, Any] = {"extend": extend, "shift": shift, "bootstrap": bootstrap}
        return evaluate(str(self.out), seeds=seeds, study_storage=self.study_storage, **options)

    def _results(self) -> SearchResults:
        if not is_complete(self.out):
            from tune_calib.tuning.search.run import write_outcome_so_far

            write_outcome_so_far(self.out, self.study_storage)
        return load_search(self.out)

    def __str__(self) -> str:
        """Return the summary as a terminal shows it."""
        return str(describe(self._results()))

    def __repr__(self) -> str:
        """Return the folder and the status of its suggestions."""
        return f"<OpenSearch {self.out}: {self._results().note()}>"

    def _repr_html_(self) -> str:
        with with_plugins_of(self.out):
            return html(search_tables.best(self._results()))


@dataclass(frozen=True, eq=False, repr=False)
class OpenExperiment(Mapping[str, OpenRun | OpenSearch]):
    """The results of an experiment file, by the names of its entries.

    Attributes:
        out: Folder of the results.
        entries: Results of runs and searches, in the order in which they ran.
        failures: A line for each crashed trial and for each entry that was stopped.
    """

    out: AnyPath
    entries: Mapping[str, OpenRun | OpenSearch]
    failures: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> OpenRun | OpenSearch:
        """Return the results of an entry."""
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the entries."""
        return iter(self.entries)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    @property
    def rows(self) -> pd.DataFrame:
        """Return the rows of all entries; the first column, ``entry``, has the entry's name."""
        frames = [entry.rows.assign(entry=name) for name, entry in self.items()]
        if not frames:
            return pd.DataFrame(columns=["entry"])
        rows = pd.concat(frames, ignore_index=True)
        return rows[["entry", *rows.columns.drop("entry")]]

    def table(self) -> str:
        """Return the tables of all entries in Markdown, each with a heading."""
        return "\n".join(f"## {name}\n\n{entry.table()}" for name, entry in self.items())

    def report(self) -> AnyPath:
        """Write the report of every entry; return the path of the page over all entries."""
        for entry in self.values():
            entry.report()
        return write_overview(self.out, [entry.out for entry in self.values()])

    def __str__(self) -> str:
        """Return the tables of all entries as a terminal shows them."""
        texts = [f"== {name} ==\n{entry}" for name, entry in self.items()]
        return "\n\n".join([*texts, *self.failures])

    def __repr__(self) -> str:
        """Return the folder and the number of entries."""
        noun = "entry" if len(self) == 1 else "entries"
        return f"<OpenExperiment {self.out}: {len(self)} {noun}>"

    def _repr_html_(self) -> str:
        parts = []
        for name, entry in self.items():
            parts.append(f"<h3>{escape(name)}</h3>\n{entry._repr_html_()}")
        return "\n".join([*parts, *_preformatted("\n".join(self.failures))])


@contextlib.contextmanager
def with_plugins_of(out: AnyPath) -> Iterator[None]:
    """Load those plug-ins of a folder that this process ran before, and warn about the others."""
    with plugins.restored():
        plugins.use([*plugins.in_use(), *plugins.run_before(r.content for r in read_plugins(out))])
        if note := describe_unloaded(out):
            warnings.warn(f"{note} (in Python: tune_calib.plugins.load)", stacklevel=4)
        yield


def _preformatted(text: str) -> list[str]:
    return [f"<pre>{escape(text)}</pre>"] if text else []
