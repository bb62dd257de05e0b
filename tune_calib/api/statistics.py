"""Statistics over several runs: ranks, averages, tests of significance, differences."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from analysis import style
from analysis.compare import benchmark as benchmark_
from analysis.compare import effects as effects_
from analysis.compare import ranks as ranks_
from analysis.compare import significance as significance_
from analysis.compare.decision import margin_of
from analysis.compare.difference import difference
from analysis.compare.gather import collect, over_columns, over_seeds, over_seeds_of
from analysis.ladder.figures.tradeoff import draw_critical_difference
from analysis.load import Run, load
from analysis.search import tables as search_tables
from analysis.search.load import load_search
from analysis.tables.render import View, json_records
from analysis.tables.table import Table
from analysis.tidy import check_metric, choose, find_split, parted
from tune_calib.api.opened import as_tuple, with_plugins_of
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.results.folders import has_result_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Folders = str | PathLike[str] | Sequence[str | PathLike[str]]
Where = Mapping[str, str | Sequence[str]]
Form = Literal["plain", "markdown", "latex", "html", "csv", "json"]


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Ranks, averages, differences or the result of a test, shown as a table in notebooks.

    Attributes:
        view: The tables and the same numbers for programs.
        draw: Function that draws the figure, if there is one.
        figure_name: File name of the figure.
        no_figure: Message if there is nothing to draw.
    """

    view: View
    draw: "Callable[[], Figure | None]" = lambda: None
    figure_name: str = ""
    no_figure: str = "no figure: only averages and significance have one"

    @property
    def rows(self) -> pd.DataFrame:
        """Return the numbers as fractions, one row per method (and column, metric or pair)."""
        frame = self.view.frame
        return pd.DataFrame() if frame is None else frame

    @property
    def notes(self) -> list[str]:
        """Return notes on what is left out or not counted, and why."""
        return list(self.view.notes)

    def table(
        self, form: Form = "markdown", *, caption: str | None = None, label: str | None = None
    ) -> str:
        """Return the tables as text.

        Args:
            form: ``plain``, ``markdown``, ``latex``, ``html``, ``csv`` or ``json``.
            caption: Caption of the LaTeX table; its own if None.
            label: Label of the LaTeX table; its own if None.
        """
        return self.view.render(form, caption, label)

    def figure(self) -> "Figure":
        """Draw the averages of ECE as bars, or the critical-difference diagram of Friedman's test.

        Raises:
            UserError: There is nothing to draw.
        """
        with style.applied():
            drawn = self.draw()
        if drawn is None:
            raise UserError(self.no_figure)
        return drawn

    def __repr__(self) -> str:
        """Return the tables as a terminal shows them."""
        return str(self.view)

    def _repr_html_(self) -> str:
        return self.view.render("html")


def ranks(
    folders: Folders = (),
    *,
    published: str | None = None,
    metric: str = "ece",
    ranking: Literal["competition", "average"] = "competition",
    split: str | None = None,
    where: Where | None = None,
) -> Statistics:
    """Rank methods by a metric over (data set, backbone) columns, best mean rank first.

    Args:
        folders: Folders or URLs of runs; none with ``published``.
        published: A paper's table, such as ``fedlas/table1``.
        metric: Name of the metric; for OOD detection ``ood/SET/METRIC``.
        ranking: Rank of ties: the smallest (``competition``) or the mean (``average``).
        split: Split of the results; ``test`` or, for OOD metrics, all OOD sets if None.
        where: Use only rows with these values by column, e.g. ``{"dataset": "cifar10"}``.

    Raises:
        UserError: An argument is wrong, or no column has a number for every method.
    """
    with _opened(folders) as paths:
        metric, split = parted(metric, split)
        collected = collect(paths, published, metric, split=split)
        chosen = choose(collected.frame, **(where or {}))
        notes, titles = collected.notes, collected.titles
        ranked = ranks_.rank(chosen, metric, ranking, notes=notes, titles=titles)
        return Statistics(ranks_.view(ranked))


def averages(
    folders: Folders = (),
    *,
    published: str | None = None,
    metric: str | Sequence[str] = ("accuracy", "ece", "o_ece", "u_ece"),
    split: str | None = None,
    where: Where | None = None,
) -> Statistics:
    """Average metrics over (data set, backbone) columns, with one row per method.

    Args:
        folders: Folders or URLs of runs; none with ``published``.
        published: A paper's table, such as ``fedlas/table1``.
        metric: Names of metrics.
        split: Split of the results; ``test`` or, for OOD metrics, all OOD sets if None.
        where: Use only rows with these values by column, e.g. ``{"dataset": "cifar10"}``.

    Raises:
        UserError: An argument is wrong, or no column has a number for every method.
    """
    names = metric.split(",") if isinstance(metric, str) else metric
    with _opened(folders) as paths:
        collected = {}
        for text in dict.fromkeys(map(str.strip, names)):
            name, of_split = parted(text, split)
            if name in collected:
                listed = ",".join(names)
                raise UserError(
                    f"`metric` {listed}: {name} is given for two splits; average them one by one"
                )
            of_metric = collect(paths, published, name, split=of_split)
            collected[name] = of_metric._replace(frame=choose(of_metric.frame, **(where or {})))
        table = ranks_.average(collected)
    draw = partial(ranks_.draw_averages, table)
    no_figure = "no figure: it shows o_ece and u_ece, and `metric` lacks one"
    return Statistics(ranks_.view_averages(table), draw, "averages", no_figure=no_figure)


def significance(
    folders: Folders = (),
    *,
    published: str | None = None,
    metric: str = "ece",
    test: Literal["wilcoxon", "t", "friedman"] = "wilcoxon",
    baseline: str | None = None,
    split: str | None = None,
    margin: float | None = None,
    blocks: Literal["columns", "seeds"] = "columns",
) -> Statistics:
    """Run a significance test: over the seeds of one run, or over the columns of several.

    In one run, each method is also decided to be better than the baseline, worse, equivalent within
    a margin, or not separated from it, over networks and test samples, or over the test samples of
    one network.

    Args:
        folders: Folders or URLs of runs; none with ``published``.
        published: A paper's table, such as ``fedlas/table1``.
        metric: Name of the metric.
        test: Paired tests with Holm's correction, or Friedman's with Nemenyi's.
        baseline: Method that the paired tests compare with.
        split: Split of the results; ``test`` if None.
        margin: Margin of equivalence as printed, e.g. 0.25 points of ECE; the metric's if None.
        blocks: Blocks over several runs: ``columns`` of a data set and backbone, averaged over
            seeds, or ``seeds`` of each of them.

    Raises:
        UserError: An argument is wrong, or there are no numbers to test.
    """
    with _opened(folders) as paths:
        metric, split = parted(metric, split)
        check_metric(metric)
        margin_of(metric, margin)  # refuses a wrong one
        if blocks not in ("columns", "seeds"):
            raise UserError(f"unknown `blocks` {blocks!r}; known: columns, seeds")
        if margin is not None and (len(paths) != 1 or test == "friedman"):
            raise UserError("`margin` applies to paired tests on one run")
        is_single = len(paths) == 1 and published is None and not has_result_files(paths[0])
        if is_single and not (run := load(paths[0])).has_imports:
            split = find_split(run, metric, split)
            verdict = significance_.judge(over_seeds(run, metric, split), test, baseline)
            verdict = significance_.add_decisions(run, verdict, margin, split=split)
        else:
            if blocks == "seeds" and published is None:
                matched = over_seeds_of(list(map(load, paths)), metric, split)
            else:
                collected = collect(paths, published, metric, split=split)
                matched = over_columns(ranks_.rank(collected.frame, metric, notes=collected.notes))
            verdict = significance_.judge(matched, test, baseline)
    return Statistics(
        significance_.view(verdict),
        partial(draw_critical_difference, verdict.friedman),
        figure_name="critical_difference",
        no_figure="no diagram: only `test` friedman with a p-value has one",
    )


def benchmark(
    folders: Folders = (),
    *,
    baseline: str | None = None,
    unit: Literal["datasets", "experiments"] = "datasets",
) -> Statistics:
    """Compare methods over many experiments: mean ranks, win rates and improvements.

    Args:
        folders: Folders or URLs of runs over several imports, or of CalArena's result files.
        baseline: Method that improvements are measured from; the base of the run if None.
        unit: What intervals generalise to: data sets, or experiments if there is only one data set.

    Raises:
        UserError: An argument is wrong, or there are fewer than two methods.
    """
    with _opened(folders) as paths:
        result = benchmark_.benchmark(paths, baseline, unit)
    return Statistics(
        benchmark_.view(result),
        lambda: draw_critical_difference(result.friedman),
        figure_name="critical_difference",
        no_figure=f"no diagram: {result.friedman.statement}",
    )


def diff(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    metric: str | Sequence[str] = (),
    split: str | None = None,
    margin: float | None = None,
) -> Statistics:
    """Compare two runs rung by rung with matched seeds (B minus A).

    Args:
        first: Folder or URL of run A.
        second: Folder or URL of run B.
        metric: Names of metrics; accuracy, ECE and NLL if empty.
        split: Split of the results; ``test`` if None.
        margin: Margin of equivalence of one metric as printed; the metric's if None.

    Raises:
        UserError: An argument is wrong, or the runs have no rung or no seed in common.
    """
    with _opened((first, second)) as (left, right):
        metrics = as_tuple(metric)
        first_run, second_run = _load_one(left), _load_one(right)
        return Statistics(difference(first_run, second_run, metrics, split=split, margin=margin))


def interaction(
    folder: str | PathLike[str],
    *,
    of: str,
    with_: str,
    metric: str = "ece",
    margin: float | None = None,
) -> Statistics:
    """Compare the effect of two methods together with the sum of their effects alone.

    The run must have the base, each method alone, and the pipeline of both.

    Args:
        folder: Folder or URL of a run.
        of: First method, e.g. ``ls``.
        with_: Second method, e.g. ``mac_cal``.
        metric: Name of the metric, on test.
        margin: Margin of equivalence as printed, e.g. 0.25 points of ECE; the metric's if None.

    Raises:
        UserError: An argument is wrong, or the run lacks a method or the pipeline of both.
    """
    with _opened(folder) as (path,):
        check_metric(parted(metric)[0])
        run = _load_one(path)
        return Statistics(significance_.interaction(run, of, with_, metric, margin=margin))


def effects(
    folder: str | PathLike[str], *, metric: str = "ece", margin: float | None = None
) -> Statistics:
    """Compute what each step of a ladder contributes, from a run with a design.

    Args:
        folder: Folder or URL of a run.
        metric: Name of the metric, on test.
        margin: Margin of equivalence as printed, e.g. 0.25 points of ECE; the metric's if None.

    Raises:
        UserError: An argument is wrong, or the run has no design.
    """
    with _opened(folder) as (path,):
        check_metric(metric)
        return Statistics(effects_.view(_load_one(path), metric, margin))


def sensitivity(folder: str | PathLike[str]) -> Statistics:
    """Compute what a metric loses if one setting changes, from a search of one at a time.

    Args:
        folder: Folder or URL of a search.

    Raises:
        UserError: The folder has no search, or one of another sampler.
    """
    with _opened(folder) as (path,):
        search = load_search(path)
        tables = search_tables.sensitivity(search)
        if not tables:
            raise UserError(f"{path}: search with `sampler` one-at-a-time for its sensitivity")
        return _tabulate(tables[0], search_tables.measure_sensitivity(search))


def importance(folder: str | PathLike[str]) -> Statistics:
    """Compute how much each setting of a search matters, alone and in pairs.

    Args:
        folder: Folder or URL of a search.

    Raises:
        UserError: The folder has no search.
    """
    with _opened(folder) as (path,):
        search = load_search(path)
        return _tabulate(search_tables.importance(search), search_tables.list_importance(search))


def _tabulate(table: Table, rows: Sequence[Mapping[str, Any]]) -> Statistics:
    frame = pd.DataFrame(rows)
    return Statistics(View([table], json_records(frame), frame, [table.caption, *table.notes]))


def _load_one(folder: AnyPath) -> Run:
    if not has_result_files(folder) and not (run := load(folder)).has_imports:
        return run
    raise UserError(f"{folder} has several data sets; use tune-calib analyze benchmark")


@contextlib.contextmanager
def _opened(folders: Folders) -> Iterator[list[AnyPath]]:
    several = (folders,) if isinstance(folders, str | PathLike) else folders
    paths = [parse_path(fspath(folder)) for folder in several]
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(with_plugins_of(path))
        yield paths
