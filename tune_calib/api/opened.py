"""Results as Python has them: frames, tables, figures, and what a notebook shows."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.ladder import tables
from analysis.ladder.files import load_sweep
from analysis.ladder.recipes import weak_heads
from analysis.ladder.report import Options, write_report
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.page.figures import draw_in_notebook, png_image
from analysis.search import tables as search_tables
from analysis.search.load import SearchResults, is_complete, load_search
from analysis.search.report import write_search_report
from analysis.sweep_file.overview import write_overview
from analysis.tables.render import html, markdown
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import find_entries, is_search
from tune_calib.results.plugin_folders import describe_unloaded, read_records
from tune_calib.spec import plugins
from tune_calib.spec.resolved import ResolvedRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 640  # of a figure in a notebook, in CSS pixels


@dataclass(frozen=True, eq=False, repr=False)
class OpenSweep:
    """The results of a ladder or a comparison, read from its folder when they are asked for.

    Attributes:
        out: folder of the sweep.
        crashed: a line for each trial that crashed in this call.
        notes: what else is to be said of them.
    """

    out: AnyPath
    crashed: tuple[str, ...] = ()
    notes: str = ""

    @property
    def rows(self) -> pd.DataFrame:
        """One row a trial that ended; columns as docs/pages/results-on-disk.md has them.

        Metrics are fractions, e.g. ``rows["test/ece"]``.
        """
        return load(self.out).trials

    @property
    def remarks(self) -> list[str]:
        """A line for each rung with heads far less accurate than the networks under them.

        The trials themselves have the flag ``head_below_network`` in ``rows["flags"]``.
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
        """The table in Markdown: mean and spread of each rung on test, in percent.

        Args:
            metric: metrics of the table; the usual ones if there are none.
            regime: columns of the regime too.
            intervals: over the test samples instead of the spread over seeds.
            published: a paper's table to put beside it.

        Raises:
            UserError: no result has what is asked for.
        """
        metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        options = Options(published, None, regime, metrics, intervals)
        with _known(self.out):
            return f"{markdown(tables.ladder(load_sweep(self.out, options)))}\n"

    def figure(self, name: str = "reliability") -> "Figure":
        """A figure of the report, for matplotlib.

        Args:
            name: as ``tune-calib list ladder-figures`` has it.

        Raises:
            UserError: there is no such figure, or nothing to draw in it.
        """
        with _known(self.out):
            return draw_in_notebook(LADDER_FIGURES[name], LadderResults(load(self.out)))

    def report(self) -> AnyPath:
        """Write tables, figures and the page beside the results; gives the page."""
        with _known(self.out):
            write_report(self.out)
        return self.out / "report.html"

    def __str__(self) -> str:
        """The table as a terminal shows it."""
        with _known(self.out):
            sweep = load(self.out)
            return "\n\n".join(filter(None, [str(tables.ladder(sweep)), self.notes]))

    def __repr__(self) -> str:
        """Where it lies, and how its trials ended."""
        told = ", ".join(f"{n} {status}" for status, n in load(self.out).counts().items())
        return f"<OpenSweep {self.out}: {told}>"

    def _repr_html_(self) -> str:
        """For notebooks: the table, and the reliability diagrams where there are bins."""
        with _known(self.out):
            sweep = load(self.out)
            parts = [html(tables.ladder(sweep).without_blank())]
        with contextlib.suppress(UserError):  # of results without bins
            content = io.BytesIO()
            self.figure().savefig(content, format="png", dpi=150)
            parts.append(png_image(content.getvalue(), "reliability diagrams", _WIDTH))
        return "\n".join([*parts, *_preformatted(self.notes)])


@dataclass(frozen=True, eq=False, repr=False)
class OpenSearch:
    """The results of a search, on ``select``, read from its folder when they are asked for.

    Attributes:
        out: folder of the search.
        crashed: a line for each trial that crashed in this call.
        notes: its end as a terminal shows it; empty where this process did not carry it out.
        study_storage: URL of its study, where that is a database.
    """

    out: AnyPath
    crashed: tuple[str, ...] = ()
    notes: str = ""
    study_storage: str | None = None

    @property
    def rows(self) -> pd.DataFrame:
        """One row a trial; metrics are fractions, of ``select`` alone."""
        return self._results().trials

    @property
    def suggestions(self) -> pd.DataFrame:
        """One row a suggestion: number, status, settings, ``mean`` of the first metric."""
        return self._results().table()

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The settings that the declared rule chooses, as ``set`` takes them.

        None where no suggestion keeps the accuracy within the guard.
        """
        outcome = self._results().outcome
        points = {each.number: each.point for each in outcome.suggestions}
        return None if outcome.chosen is None else dict(points[outcome.chosen])

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that the search did not search, as ``set`` takes them."""
        given = self._results().manifest.question.given
        return ResolvedRequest(given).fixed

    @property
    def command(self) -> str | None:
        """The command that trains the choice again, with every setting of it.

        None where nothing is chosen, or no command does it.
        """
        return self._results().outcome.command

    def table(self) -> str:
        """Baseline, defaults and the best suggestions in Markdown."""
        search = self._results()
        return f"{markdown(search_tables.best(search))}\n"

    def figure(
        self,
        name: str = "history",
        *,
        settings: str | Sequence[str] = (),
        metric: str | None = None,
    ) -> "Figure":
        """Draw a figure of the report, for matplotlib.

        Args:
            name: as ``tune-calib list search-figures`` has it.
            settings: searched settings to show, e.g. ``["gamma", "tau0"]``; those with two values
                tried that matter most if empty. For ``sensitivity``, ``parallel`` and ``heat_map``,
                which takes two, the first across.
            metric: a metric recorded on ``select``; the first one searched for if None.

        Raises:
            UserError: there is no such figure, setting or metric, or nothing to draw.
        """
        with _known(self.out):
            figure = SEARCH_FIGURES[name]
            chosen = {"settings": bool(settings), "metric": metric is not None}
            for option in (key for key, is_chosen in chosen.items() if is_chosen):
                if option not in figure.takes:
                    raise UserError(f"figure {name} takes no {option}")
            names = (settings,) if isinstance(settings, str) else settings
            return draw_in_notebook(figure, self._results().focus(names, metric))

    def report(self) -> AnyPath:
        """Write tables, figures and the page beside the results; gives the page."""
        with _known(self.out):
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
    ) -> OpenSweep:
        """Read the test split, once: the chosen trial under fresh seeds, beside the baseline.

        Args:
            seeds: fresh seeds of networks and heads.
            extend: read test again, under more seeds than before.
            shift: shift sets to look at the trials on.
            bootstrap: draws of the test samples, for intervals.

        Raises:
            UserError: the search found nothing, or test was read with another choice or seeds.
        """
        from tune_calib import evaluate

        results: OpenSweep = evaluate(
            str(self.out),
            seeds=seeds,
            extend=extend,
            shift=shift,
            bootstrap=bootstrap,
            study_storage=self.study_storage,
        )
        return results

    def _results(self) -> SearchResults:
        if not is_complete(self.out):
            from tune_calib.tuning.search.run import write_outcome_so_far

            write_outcome_so_far(self.out, self.study_storage)
        return load_search(self.out)

    def __str__(self) -> str:
        """As a terminal shows the end of a search."""
        return self.notes or self.table()

    def __repr__(self) -> str:
        """Where it lies, and how its suggestions ended."""
        return f"<OpenSearch {self.out}: {self._results().note()}>"

    def _repr_html_(self) -> str:
        """For notebooks: the best suggestions."""
        with _known(self.out):
            return html(search_tables.best(self._results()))


@dataclass(frozen=True, eq=False, repr=False)
class OpenSweepFile(Mapping[str, OpenSweep | OpenSearch]):
    """The results of a sweep file: of each entry by the name of its folder.

    Attributes:
        out: folder of the sweep file's results.
        entries: sweeps and searches, in the order in which they were carried out.
        failures: a line for each trial that crashed, and for what stopped an entry.
    """

    out: AnyPath
    entries: Mapping[str, OpenSweep | OpenSearch]
    failures: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> OpenSweep | OpenSearch:
        """The results of an entry.

        Raises:
            KeyError: there is none of this name.
        """
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the entries."""
        return iter(self.entries)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.entries)

    @property
    def rows(self) -> pd.DataFrame:
        """The rows of all entries; the first column, ``entry``, is the name."""
        frames = [each.rows.assign(entry=name) for name, each in self.entries.items()]
        if not frames:
            return pd.DataFrame(columns=["entry"])
        whole = pd.concat(frames, ignore_index=True)
        return whole[["entry", *(name for name in whole if name != "entry")]]

    def table(self) -> str:
        """The tables of all entries in Markdown, a heading each."""
        return "\n".join(f"## {name}\n\n{each.table()}" for name, each in self.entries.items())

    def report(self) -> AnyPath:
        """Write the report of every entry, and the page over all of them; gives that page."""
        for each in self.entries.values():
            each.report()
        return write_overview(self.out, [each.out for each in self.entries.values()])

    def __str__(self) -> str:
        """Every entry as a terminal shows it."""
        told = "\n\n".join(f"== {name} ==\n{each}" for name, each in self.entries.items())
        return "\n\n".join(filter(None, [told, *self.failures]))

    def __repr__(self) -> str:
        """Where it lies, and how many entries there are."""
        count = len(self.entries)
        return f"<OpenSweepFile {self.out}: {count} {'entry' if count == 1 else 'entries'}>"

    def _repr_html_(self) -> str:
        """For notebooks: every entry under its name."""
        parts = [
            f"<h3>{escape(name)}</h3>\n{each._repr_html_()}" for name, each in self.entries.items()
        ]
        return "\n".join([*parts, *_preformatted("\n".join(self.failures))])


def opened(out: AnyPath, study_storage: str | None) -> OpenSweep | OpenSearch | OpenSweepFile:
    """What a folder holds.

    Raises:
        UserError: it holds no results.
    """
    if below := find_entries(out):
        found: dict[str, Any] = {each.name: opened(each, study_storage) for each in below}
        return OpenSweepFile(out, found)
    if is_search(out):
        return OpenSearch(out, study_storage=study_storage)
    load(out)  # one that holds nothing is refused here
    return OpenSweep(out)


@contextlib.contextmanager
def _known(out: AnyPath) -> Iterator[None]:
    """Load the plug-ins behind a folder that this process ran before; warn of the others."""
    with plugins.restored():
        plugins.use([*plugins.in_use(), *plugins.run_before(r.content for r in read_records(out))])
        if note := describe_unloaded(out):
            warnings.warn(f"{note} (in Python: tune_calib.plugins.load)", stacklevel=4)
        yield


def _preformatted(text: str) -> list[str]:
    return [f"<pre>{escape(text)}</pre>"] if text else []
