"""The command line. Heavy imports stand inside the commands, so that ``--help`` is quick."""

import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from tune_calib.cli import (
    conformance,
    imports,
    ladders,
    registries,
    reproductions,
    results,
    searches,
    statistics,
    sweep_files,
)
from tune_calib.cli.added_options import on_terminal, with_log, with_plugins, with_tables
from tune_calib.cli.command import Command, LongCommand
from tune_calib.cli.entry import one_line, reads_folders, refuse_empty
from tune_calib.cli.panels import LOOK_UP, OWN, READ, RUN
from tune_calib.console import echo

# These run trials, which loggers may follow.
_ENDING = (
    ladders.ablate,
    ladders.compare,
    searches.search,
    searches.resume,
    searches.evaluate,
    sweep_files.run,
)
# These show what they do while they do it.
_LONG = (
    *_ENDING,
    reproductions.reproduce,
    results.report,
    results.pictures,
    results.export,
    imports.import_,
)

# These run methods; all others only read, and load no plug-in that a file of defaults names.
_TRAINING = (
    *_ENDING,
    reproductions.reproduce,
    results.pictures,
    results.export,
    conformance.check_method,
)

app = typer.Typer(
    help="Hyper-parameter search and ablation harness for neural-network calibration.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _help(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="of the program")] = False,
) -> None:
    if version:
        echo(f"tune-calib {metadata.version('tune-calib')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())  # noqa: TID251


_COMMANDS: tuple[tuple[str, tuple[Callable[..., object], ...]], ...] = (
    (RUN, (
        ladders.ablate, ladders.compare, searches.search, searches.resume, searches.evaluate,
        sweep_files.run, reproductions.reproduce,
    )),
    (READ, (
        results.report, results.status, statistics.ranks, statistics.averages,
        statistics.significance, statistics.diff, results.pictures,
    )),
    (LOOK_UP, (registries.list_, registries.explain, registries.cite, sweep_files.schema)),
    (OWN, (imports.import_, results.export, conformance.check_method)),
)  # fmt: skip
_STATISTICS = (
    statistics.ranks, statistics.averages, statistics.significance, statistics.diff,
)  # fmt: skip
_TABLES = (registries.list_, results.report, *_STATISTICS)

for _panel, _members in _COMMANDS:
    for _command in _members:
        _once = with_log(_command) if _command in _ENDING else _command
        _once = reads_folders(_once) if _command in _STATISTICS else _once
        _shown = (with_tables if _command in _TABLES else on_terminal)(_once)
        _name = _command.__name__.strip("_").replace("_", "-")
        _kind = LongCommand if _command in _LONG else Command
        app.command(_name, cls=_kind, rich_help_panel=_panel)(
            with_plugins(_shown, trains=_command in _TRAINING)
        )


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: a user's mistake is one line and exit code 2."""
    with one_line():
        refuse_empty(sys.argv[1:] if arguments is None else arguments)
        # Else Typer prints a usage error over several lines and ends the process itself.
        code = app(args=arguments, prog_name="tune-calib", standalone_mode=False)
    sys.exit(code)
