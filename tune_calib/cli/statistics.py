"""Commands that read results and print. The imports stand inside, as in ``cli``."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.tables.render import View
from tune_calib.cli.added_options import with_options
from tune_calib.cli.completion import names, published_tables
from tune_calib.cli.options import one_format
from tune_calib.cli.panels import FORMATS
from tune_calib.console import echo, shown
from tune_calib.errors import UserError
from tune_calib.spec.metrics import rankable_metrics

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath

Metric = Annotated[
    str,
    typer.Option(
        help="see: tune-calib list metrics; of a set of foreign images as ood/svhn/auroc",
        autocompletion=names(rankable_metrics),
    ),
]
Split = Annotated[
    str | None, typer.Option(help="of the results", show_default="test; all OOD sets for auroc ...")
]
Dirs = Annotated[list[str] | None, typer.Argument(help="folders or URLs of sweeps")]
Published = Annotated[
    str | None,
    typer.Option(
        help="a paper's table, see: tune-calib list published",
        autocompletion=names(published_tables),
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=VALUE", help="of the rows that count; repeatable"),
]


_FORMATS: dict[str, Any] = {
    name: (Annotated[bool, typer.Option(f"--{name}", help=told, rich_help_panel=FORMATS)], False)
    for name, told in {
        "json": "for programs",
        "markdown": "for a page",
        "latex": "booktabs",
        "csv": "fractions, a row a method (and column)",
        "html": "a table element",
    }.items()
}
_Caption = Annotated[
    str | None,
    typer.Option(help="of the --latex table", show_default="its own", rich_help_panel=FORMATS),
]
_Label = Annotated[
    str | None,
    typer.Option(help="of the --latex table, e.g. tab:ranks", rich_help_panel=FORMATS),
]


def _in_formats(command: Callable[..., View]) -> Callable[..., None]:
    """A command that prints what it gives in the format that is asked for."""

    @functools.wraps(command)
    def run(caption: str | None, label: str | None, **options: Any) -> None:
        # Before the imports, which take a while: a wrong option is told at once.
        form = one_format(**{name: options.pop(name) for name in _FORMATS})
        given = _of_latex(form, caption, label)
        view = command(**options)
        if form == "csv" or (form == "json" and isinstance(view.content, list)):
            for note in view.notes:  # the other formats have them
                echo(note, err=True)
        echo(shown(view.render(form, **given)))

    return with_options(run, command, **_FORMATS, caption=(_Caption, None), label=(_Label, None))


@_in_formats
def ranks(
    dirs: Dirs = None,
    published: Published = None,
    metric: Metric = "ece",
    ranking: Annotated[str, typer.Option(help="competition or average")] = "competition",
    split: Split = None,
    where: Where = None,
) -> View:
    """Rank methods by a metric over (data set, backbone) columns, best mean rank first.

    Examples:
        tune-calib ranks runs/cifar10 runs/cifar100 --metric ece --latex
        tune-calib ranks --published fedlas/table1 --where dataset=cifar10
    """
    folders = _opened(dirs, published)

    from analysis.compare.rank_tables import view
    from analysis.compare.ranks import collect, rank
    from analysis.tidy import choose, parted

    metric, split = parted(metric, split)
    found = collect(folders, published, metric, split)
    chosen = choose(found.frame, **_wanted(where or []))
    return view(rank(chosen, metric, ranking, found.notes, found.titles))


@_in_formats
def averages(
    dirs: Dirs = None,
    published: Published = None,
    metric: Annotated[
        str, typer.Option(help="metrics, joined by commas")
    ] = "accuracy,ece,o_ece,u_ece",
    split: Split = None,
    where: Where = None,
    figure: Annotated[Path | None, typer.Option(help="folder for the bars of ECE")] = None,
) -> View:
    """Average metrics over (data set, backbone) columns, a row a method.

    Examples:
        tune-calib averages runs/cifar10 runs/cifar100 --metric accuracy,ece,nll
        tune-calib averages runs/cifar10 runs/cifar100 --figure figures
    """
    folders = _opened(dirs, published)

    from analysis import style
    from analysis.compare.averages import average
    from analysis.compare.averages_tables import draw, view
    from analysis.compare.ranks import collect
    from analysis.tidy import choose, parted

    wanted = _wanted(where or [])
    collected = {}
    for text in dict.fromkeys(metric.split(",")):
        name, of_split = parted(text.strip(), split)
        if name in collected:
            raise UserError(f"--metric {metric}: {name} of two splits; average them one by one")
        found = collect(folders, published, name, of_split)
        collected[name] = found._replace(frame=choose(found.frame, **wanted))
    table = average(collected)
    if figure is not None:
        style.apply()
        drawn = draw(table)
        if drawn is None:
            raise UserError("no figure: it shows o_ece and u_ece, and --metric lacks one")
        style.save(drawn, figure, "averages")
    return view(table)


@_in_formats
def significance(
    dirs: Dirs = None,
    published: Published = None,
    metric: Metric = "ece",
    test: Annotated[str, typer.Option(help="wilcoxon, t or friedman")] = "wilcoxon",
    baseline: Annotated[str | None, typer.Option(help="what wilcoxon and t compare with")] = None,
    split: Split = None,
    figure: Annotated[Path | None, typer.Option(help="folder for friedman's diagram")] = None,
) -> View:
    """Carry a declared test out: over the seeds of one sweep, else over the columns of several.

    Examples:
        tune-calib significance runs/compare --test wilcoxon --baseline ce
        tune-calib significance --published fedlas/table1 --test friedman --figure figures
    """
    folders = _opened(dirs, published)

    from analysis import style
    from analysis.compare.blocks import over_columns, over_seeds
    from analysis.compare.ranks import collect, rank
    from analysis.compare.significance import judge
    from analysis.compare.significance_tables import view
    from analysis.ladder.figures.critical_difference import draw_critical_difference
    from analysis.load import load
    from analysis.tidy import check_metric, default_split, parted

    metric, split = parted(metric, split)
    check_metric(metric)
    if len(folders) == 1 and published is None:
        sweep = load(folders[0])
        matched = over_seeds(sweep, metric, split or default_split(sweep, metric))
    else:
        found = collect(folders, published, metric, split)
        table = rank(found.frame, metric, notes=found.notes)
        matched = over_columns(table, found.withheld)
    verdict = judge(matched, test, baseline)
    if figure is not None:
        style.apply()
        drawn = draw_critical_difference(verdict.friedman)
        if drawn is None:
            raise UserError("no diagram: only --test friedman with a p-value has one")
        style.save(drawn, figure, "critical_difference")
    return view(verdict)


def _opened(dirs: list[str] | None, published: str | None) -> "list[AnyPath]":
    """Folders of sweeps, refused before what takes seconds is imported if one is none."""
    from tune_calib.cli.folders import opened
    from tune_calib.paths import parse_path

    # Folders beside a published table are another mistake.
    return [opened(each) if published is None else parse_path(each) for each in dirs or []]


@_in_formats
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="folder or URL of a sweep")],
    second: Annotated[str, typer.Argument(metavar="B", help="of the sweep that is held against A")],
    metric: Annotated[
        list[str] | None, typer.Option(help="of the table; default: accuracy, ece, nll")
    ] = None,
    split: Split = None,
) -> View:
    """Hold two sweeps against each other: rungs of one name, seeds matched, B minus A.

    Examples:
        tune-calib diff runs/first runs/second
        tune-calib diff runs/first runs/second --metric ece --latex
    """
    left, right = _opened([first, second], None)

    from analysis.compare.difference import difference
    from analysis.compare.difference_tables import view
    from analysis.load import load

    return view(difference(load(left), load(right), metric or (), split))


def _of_latex(form: str, caption: str | None, label: str | None) -> dict[str, str]:
    """Caption and label, as far as they are given."""
    given = {"caption": caption, "label": label}
    told = {name: text for name, text in given.items() if text is not None}
    if told and form != "latex":
        raise UserError(f"--{next(iter(told))} is of a table in LaTeX; add --latex")
    for character in set(label or "") & set("\\{}%#~$^&"):
        raise UserError(f"--label {label}: LaTeX takes no {character} in a label")
    return told


def _wanted(where: list[str]) -> dict[str, list[str]]:
    """``column=value`` texts by column; a column that is named twice may have either value."""
    wanted: dict[str, list[str]] = {}
    for text in where:
        column, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text}: write column=value, e.g. dataset=cifar10")
        wanted.setdefault(column, []).append(value)
    return wanted
