"""Statistics over several runs: ranks, averages, tests of significance, differences."""

import functools
import warnings
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from tune_calib.cli.common import one_format, open_folder, published_tables
from tune_calib.cli.options import FORMATS, added, complete, expand, with_options
from tune_calib.console import echo, shown
from tune_calib.errors import UserError
from tune_calib.files.paths import parse_path
from tune_calib.results.folders import has_result_files
from tune_calib.spec.metrics import rankable_metrics

DiagramFolder = Annotated[
    Path | None, typer.Option(help="folder for Friedman's diagram", callback=expand)
]
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
SearchDir = Annotated[str, typer.Argument(metavar="DIR", help="folder or URL of a search")]
Published = Annotated[
    str | None,
    typer.Option(
        help="a paper's table, see: tune-calib list published",
        autocompletion=complete(published_tables),
    ),
]
Where = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="use only these rows; repeatable")
]

Margin = Annotated[
    float | None,
    typer.Option(
        help="margin of equivalence as printed, e.g. 0.25 points",
        show_default="0.25 points, 0.002 nats",
    ),
]

_FORMATS = (
    added("json", bool, "print JSON", panel=FORMATS),
    added("markdown", bool, "print Markdown", panel=FORMATS),
    added("latex", bool, "print a booktabs table", panel=FORMATS),
    added("csv", bool, "print CSV of fractions, one row per method (and column)", panel=FORMATS),
    added("html", bool, "print a table element", panel=FORMATS),
)
_LATEX = (
    added(
        "caption", str | None, "caption of the --latex table", panel=FORMATS, show_default="its own"
    ),
    added("label", str | None, "label of the --latex table, e.g. tab:ranks", panel=FORMATS),
)


def _in_formats(command: Callable[..., None]) -> Callable[..., None]:
    """Call the function of the API with the options of a command; print in the chosen format."""

    @functools.wraps(command)
    def run(caption: str | None, label: str | None, **options: Any) -> None:
        # Before the slow imports, so that a wrong option is refused at once.
        form: Any = one_format(**{option.name: options.pop(option.name) for option in _FORMATS})
        latex = {"caption": caption, "label": label}
        if form != "latex" and any(text is not None for text in latex.values()):
            raise UserError("--caption and --label apply only to --latex; add --latex")
        figure = options.pop("figure", None)
        places = [options.pop(name) for name in ("first", "second", "folder") if name in options]
        folders = places or options.pop("dirs") or []
        if options.get("published") is None:
            for folder in folders:
                if not has_result_files(parse_path(folder)):
                    open_folder(folder)  # prints a note on plug-ins; in Python it is a warning
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tune_calib.plugins.load")
            from tune_calib.api import statistics

            if "where" in options:
                options["where"] = _columns(options["where"])
            arguments = {name: value for name, value in options.items() if value is not None}
            compute = getattr(statistics, command.__name__)
            comparison = compute(*(places or [folders]), **arguments)
        if form == "csv" or (form == "json" and isinstance(comparison.view.content, list)):
            for note in comparison.notes:  # the other formats include them
                echo(note, err=True)
        echo(shown(comparison.table(form, **latex)))
        if figure is not None:  # after the table, which is printed even if there is no figure
            from analysis import style

            with style.applied():
                style.save(comparison.figure(), figure, comparison.figure_name)

    return with_options(run, *signature(command).parameters.values(), *_FORMATS, *_LATEX)


@_in_formats
def ranks(
    dirs: Dirs = None,
    published: Published = None,
    metric: Metric = "ece",
    ranking: Annotated[str, typer.Option(help="competition or average")] = "competition",
    split: Split = None,
    where: Where = None,
) -> None:
    """Rank methods by a metric over (data set, backbone) columns, best mean rank first.

    Examples:
        tune-calib analyze ranks runs/cifar10 runs/cifar100 --metric ece --latex
        tune-calib analyze ranks --published fedlas/table1 --where dataset=cifar10
    """


@_in_formats
def averages(
    dirs: Dirs = None,
    published: Published = None,
    metric: Annotated[
        str, typer.Option(help="metrics, separated by commas")
    ] = "accuracy,ece,o_ece,u_ece",
    split: Split = None,
    where: Where = None,
    figure: Annotated[
        Path | None, typer.Option(help="folder for a bar chart of ECE", callback=expand)
    ] = None,
) -> None:
    """Average metrics over (data set, backbone) columns, with one row per method.

    Examples:
        tune-calib analyze averages runs/a runs/b --metric accuracy,ece,nll
        tune-calib analyze averages runs/a runs/b --figure figures
    """


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
    margin: Margin = None,
    blocks: Annotated[
        str, typer.Option(help="blocks over several runs: columns, or seeds of each column")
    ] = "columns",
    figure: DiagramFolder = None,
) -> None:
    """Run a significance test: over the seeds of one run, or over the columns of several.

    Examples:
        tune-calib analyze significance runs/compare --test wilcoxon --baseline ce
        tune-calib analyze significance runs/a runs/b --baseline ce --blocks seeds
        tune-calib analyze significance --published fedlas/table1 --test friedman --figure figures
    """


@_in_formats
def benchmark(
    dirs: Dirs = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="method that improvements are measured from", show_default="that of the run"
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="what intervals generalise to: datasets or experiments")
    ] = "datasets",
    figure: DiagramFolder = None,
) -> None:
    """Compare methods over many experiments: mean ranks, win rates and improvements.

    An experiment is a data set and a model: an import, or a row in a folder of CalArena's result
    files.

    Examples:
        tune-calib analyze benchmark runs/compare-calarena
        tune-calib analyze benchmark results/cv-multiclass --unit experiments --figure figures
    """


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
    margin: Margin = None,
) -> None:
    """Compare two runs rung by rung with matched seeds (B minus A).

    Examples:
        tune-calib analyze diff runs/first runs/second
        tune-calib analyze diff runs/first runs/second --metric ece --latex
    """


@_in_formats
def interaction(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="folder or URL of a run")],
    of: Annotated[str, typer.Option(help="first method")],
    with_: Annotated[str, typer.Option("--with", help="second method")],
    metric: Metric = "ece",
    margin: Margin = None,
) -> None:
    """Compare the effect of two methods together with the sum of their effects alone.

    Examples:
        tune-calib analyze interaction runs/both --of ls --with mac_cal
    """


@_in_formats
def effects(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="folder or URL of a run")],
    metric: Metric = "ece",
    margin: Margin = None,
) -> None:
    """Show what each step of a ladder contributes, from a run with --design.

    Examples:
        tune-calib analyze effects runs/mac_cal-factorial-digits
        tune-calib analyze effects runs/mac_cal-factorial-digits --metric nll --latex
    """


@_in_formats
def sensitivity(folder: SearchDir) -> None:
    """Show what is lost if one setting changes, from a search with --sampler one-at-a-time.

    Examples:
        tune-calib analyze sensitivity runs/around
    """


@_in_formats
def importance(folder: SearchDir) -> None:
    """Show how much each setting of a search matters, alone and in pairs.

    Examples:
        tune-calib analyze importance runs/search --csv
    """


def _columns(where: list[str] | None) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for text in where or ():
        column, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text}: write column=value, e.g. dataset=cifar10")
        columns.setdefault(column, []).append(value)
    return columns
