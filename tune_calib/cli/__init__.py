"""The command line. Heavy imports stand inside the commands, so that ``--help`` is quick."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from tune_calib.cli import (
    conformance,
    imports,
    ladders,
    registries,
    results,
    searches,
    statistics,
    sweep_files,
)
from tune_calib.cli.entry import LiveCommand, OnceCommand, one_line, refuse_empty
from tune_calib.cli.plugged import with_plugins

# These show what they do while they do it.
_LONG = (
    ladders.ablate,
    ladders.compare,
    results.report,
    results.pictures,
    results.export,
    searches.search,
    searches.resume,
    searches.evaluate,
    sweep_files.run,
)

app = typer.Typer(
    help="Hyper-parameter search and ablation harness for neural-network calibration.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("list", cls=OnceCommand)(with_plugins(registries.list_))
app.command("import", cls=LiveCommand)(imports.import_)
for _command in (
    registries.cite,
    conformance.check_method,
    ladders.ablate,
    ladders.compare,
    results.report,
    results.pictures,
    results.export,
    results.status,
    searches.search,
    searches.resume,
    searches.evaluate,
    sweep_files.run,
    sweep_files.schema,
    statistics.ranks,
    statistics.averages,
    statistics.significance,
    statistics.diff,
):
    _kind = LiveCommand if _command in _LONG else OnceCommand
    app.command(cls=_kind)(with_plugins(_command))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: a user's mistake is one line and exit code 2."""
    with one_line():
        refuse_empty(sys.argv[1:] if arguments is None else arguments)
        # Else Typer prints a usage error over several lines and ends the process itself.
        code = app(args=arguments, standalone_mode=False)
    sys.exit(code)
