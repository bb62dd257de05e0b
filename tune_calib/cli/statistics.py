"""Statistics over several runs: ranks, averages, tests of significance, differences."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.tables.render import View
from tune_calib.cli.added_options import FORMATS, with_options
from tune_calib.cli.common import one_format, open_folder, published_tables
from tune_calib.cli.request import complete
from tune_calib.console import echo, shown
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, parse_path
from tune_calib.spec.metrics import rankable_metrics

Metric = Annotated[
    str,
    typer.Option(
        help="see: tune-calib list metrics; for OOD detection, e.g. ood/svhn/auroc",
        autocompletion=complete(rankable_metrics),
    ),
]
Split = Annotated[
    str | None,
    typer.Option(help="split of the results", show_default="test; all OOD sets for auroc"),
]
Dirs = Annotated[list[str] | None, typer.Argument(help="folders or URLs of runs")]
Published = Annotated[
    str | None,
    typer.Option(
        help="a paper's table, see: tune-calib list published",
        autocompletion=complete(published_tables),
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=VALUE", help="use only these rows; repeatable"),
]


_FORMATS: dict[str, Any] = {
    name: (Annotated[bool, typer.Option(f"--{name}", help=text, rich_help_panel=FORMATS)], False)
    for name, text in {
        "json": "print JSON",
        "markdown": "print Markdown",
        "latex": "print a booktabs table",
        "csv": "print CSV of fractions, one row per method (and column)",
        "html": "print a table element",
    }.items()
}
_Caption = Annotated[
    str | None,
    typer.Option(
        help="caption of the --latex table", show_default="its own", rich_help_panel=FORMATS
    ),
]
_Label = Annotated[
    str | None,
    typer.Option(help="label of the --latex table, e.g. tab:ranks", rich_help_panel=FORMATS),
]


def _in_formats(command: Callable[..., View]) -> Callable[..., None]:
    """Make a command that returns a view print it in the chosen format."""

    @functools.wraps(command)
    def run(caption: str | None, label: str | None, **options: Any) -> None:
        # Before the slow imports, so that a wrong option is refused at once.
        form = one_format(**{name: options.pop(name) for name in _FORMATS})
        latex = _latex_options(form, caption, label)
        view = command(**options)
        if form == "csv" or (form == "json" and isinstance(view.content, list)):
            for note in view.notes:  # the other formats have them
                echo(note, err=True)
        echo(shown(view.render(form, **latex)))

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
        tune-calib analyze ranks runs/cifar10 runs/cifar100 --metric ece --latex
        tune-calib analyze ranks --published fedlas/table1 --where dataset=cifar10
    """
    folders = _opened(dirs, published)

    from analysis.compare.gather import collect
    from analysis.compare.ranks import rank, view
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
        str, typer.Option(help="metrics, separated by commas")
    ] = "accuracy,ece,o_ece,u_ece",
    split: Split = None,
    where: Where = None,
    figure: Annotated[Path | None, typer.Option(help="folder for a bar chart of ECE")] = None,
) -> View:
    """Average metrics over (data set, backbone) columns, one row per method.

    Examples:
        tune-calib analyze averages runs/a runs/b --metric accuracy,ece,nll
        tune-calib analyze averages runs/a runs/b --figure figures
    """
    folders = _opened(dirs, published)

    from analysis import style
    from analysis.compare.averages import average, draw, view
    from analysis.compare.gather import collect
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
    baseline: Annotated[
        str | None, typer.Option(help="method that wilcoxon and t compare with")
    ] = None,
    split: Split = None,
    figure: Annotated[Path | None, typer.Option(help="folder for Friedman's diagram")] = None,
) -> View:
    """Run a significance test: over the seeds of one run, or over the columns of several.

    Examples:
        tune-calib analyze significance runs/compare --test wilcoxon --baseline ce
        tune-calib analyze significance --published fedlas/table1 --test friedman --figure figures
    """
    folders = _opened(dirs, published)

    from analysis import style
    from analysis.compare.blocks import over_columns, over_seeds
    from analysis.compare.gather import collect
    from analysis.compare.ranks import rank
    from analysis.compare.significance import judge, view
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
        matched = over_columns(table)
    verdict = judge(matched, test, baseline)
    if figure is not None:
        style.apply()
        drawn = draw_critical_difference(verdict.friedman)
        if drawn is None:
            raise UserError("no diagram: only --test friedman with a p-value has one")
        style.save(drawn, figure, "critical_difference")
    return view(verdict)


def _opened(dirs: list[str] | None, published: str | None) -> list[AnyPath]:
    """Return folders of runs; another folder is refused before slow imports."""
    # Folders beside a published table are another mistake.
    return [open_folder(each) if published is None else parse_path(each) for each in dirs or []]


@_in_formats
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="folder or URL of a run")],
    second: Annotated[
        str, typer.Argument(metavar="B", help="folder or URL of the run to compare with A")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="metric of the table; repeatable", show_default="accuracy, ece, nll"),
    ] = None,
    split: Split = None,
) -> View:
    """Compare two runs rung by rung with matched seeds (B minus A).

    Examples:
        tune-calib analyze diff runs/first runs/second
        tune-calib analyze diff runs/first runs/second --metric ece --latex
    """
    left, right = _opened([first, second], None)

    from analysis.compare.difference import difference, view
    from analysis.load import load

    return view(difference(load(left), load(right), metric or (), split))


def _latex_options(form: str, caption: str | None, label: str | None) -> dict[str, str]:
    """Return the caption and the label of a LaTeX table, if they are given."""
    options = {"caption": caption, "label": label}
    used = {name: text for name, text in options.items() if text is not None}
    if used and form != "latex":
        raise UserError(f"--{next(iter(used))} is used by --latex alone; add --latex")
    for character in set(label or "") & set("\\{}%#~$^&"):
        raise UserError(f"--label {label}: LaTeX allows no {character} in a label")
    return used


def _wanted(where: list[str]) -> dict[str, list[str]]:
    """Return the values of ``column=value`` texts by column, several where a column recurs."""
    wanted: dict[str, list[str]] = {}
    for text in where:
        column, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text}: write column=value, e.g. dataset=cifar10")
        wanted.setdefault(column, []).append(value)
    return wanted
