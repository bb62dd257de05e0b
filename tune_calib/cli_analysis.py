"""Commands that read results and print: ranks. The imports stand inside, as in ``cli``."""

from pathlib import Path
from typing import Annotated

import typer

from tune_calib.errors import UserError

Metric = Annotated[str, typer.Option(help="a metric, e.g. ece, nll, accuracy, auroc")]
Split = Annotated[str | None, typer.Option(help="test unless given; OOD sets for auroc, fpr95")]
Where = Annotated[list[str] | None, typer.Option(help="column=value of the rows that count")]


def ranks(
    dirs: Annotated[list[Path] | None, typer.Argument(help="folders of sweeps")] = None,
    published: Annotated[str | None, typer.Option(help="a paper's table: fedlas/table1")] = None,
    metric: Metric = "ece",
    ranking: Annotated[str, typer.Option(help="competition or average")] = "competition",
    split: Split = None,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="a list of objects")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="a table for a page")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="a booktabs tabular")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="a row a method and column")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="a table element")] = False,
) -> None:
    """Rank methods by a metric over (data set, backbone) columns, best mean rank first."""
    flags = {
        "json": as_json, "markdown": as_markdown, "latex": as_latex, "csv": as_csv, "html": as_html
    }  # fmt: skip
    asked = [name for name, is_asked in flags.items() if is_asked]
    if len(asked) > 1:
        raise UserError(f"ask for one format, not {' and '.join('--' + name for name in asked)}")

    from analysis.rank_tables import RENDERERS
    from analysis.ranks import collect, rank
    from analysis.tidy import choose

    frame, notes = collect(dirs or [], published, metric, split)
    table = rank(choose(frame, **_wanted(where or [])), metric, ranking, notes)
    form = asked[0] if asked else "plain"
    if form in ("json", "csv"):  # the other formats tell the notes in their caption
        for note in table.notes:
            typer.echo(note, err=True)
    typer.echo(RENDERERS[form](table))


def _wanted(where: list[str]) -> dict[str, list[str]]:
    """``column=value`` texts by column; a column that is named twice may have either value."""
    wanted: dict[str, list[str]] = {}
    for text in where:
        column, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text}: write column=value, e.g. dataset=cifar10")
        wanted.setdefault(column, []).append(value)
    return wanted
