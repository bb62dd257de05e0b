"""The command line. Slow imports stand inside the commands, so that ``--help`` is quick."""

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
from tune_calib.cli.entry import Command, LongCommand, one_line, reads_folders, refuse_empty
from tune_calib.console import echo

_RUN = (
    ladders.ablate, ladders.compare, searches.search, searches.resume, searches.evaluate,
    sweep_files.run,
)  # fmt: skip
"""Commands that run trials, which loggers may follow."""
_STATISTICS = (
    statistics.ranks, statistics.averages, statistics.significance, statistics.diff,
)  # fmt: skip
_PANELS: dict[str, tuple[Callable[..., object], ...]] = {
    "Run": (*_RUN, reproductions.reproduce),
    "Read results": (results.report, results.status),
    "Look up": (registries.list_, registries.explain),
    "Your own networks and methods": (imports.import_, results.export, conformance.check_method),
}
_ALIASES = (*_STATISTICS, results.pictures, registries.cite, sweep_files.schema)
"""Commands that another one replaced: hidden, and the same as ever."""

_LONG = (
    *_RUN, reproductions.reproduce, results.report, results.pictures, results.export,
    imports.import_,
)  # fmt: skip
"""Commands that show their progress."""
_TRAINING = (
    *_RUN, reproductions.reproduce, results.pictures, results.export, conformance.check_method,
)  # fmt: skip
"""Commands that run methods; the others read, and load no plug-in of a file of defaults."""
_TABLES = (registries.list_, results.report, *_STATISTICS)

_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Hyper-parameter search and ablation harness for neural-network calibration.",
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
)
analyze = typer.Typer(
    help="Compare several runs: ranks, averages, tests of significance, differences.",
    context_settings=_SETTINGS,
)


@app.callback(invoke_without_command=True)
def _help(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="print the version and exit")
    ] = False,
) -> None:
    if version:
        echo(f"tune-calib {metadata.version('tune-calib')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())  # noqa: TID251


def _add(group: typer.Typer, command: Callable[..., object], panel: str | None = None) -> None:
    """Add a command with the options that it shares with others; without a panel, hide it."""
    run = with_log(command) if command in _RUN else command
    run = reads_folders(run) if command in _STATISTICS else run
    run = (with_tables if command in _TABLES else on_terminal)(run)
    group.command(
        command.__name__.strip("_").replace("_", "-"),
        cls=LongCommand if command in _LONG else Command,
        rich_help_panel=panel,
        hidden=panel is None,
    )(with_plugins(run, trains=command in _TRAINING))


for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _add(app, _command, _panel)
for _command in _STATISTICS:
    _add(analyze, _command, "Commands")
for _command in _ALIASES:
    _add(app, _command)
app.add_typer(analyze, name="analyze", rich_help_panel="Read results", no_args_is_help=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; a user's mistake is one line and exit code 2."""
    with one_line():
        refuse_empty(sys.argv[1:] if arguments is None else arguments)
        # Else Typer prints a usage error over several lines and ends the process itself.
        code = app(args=arguments, prog_name="tune-calib", standalone_mode=False)
    sys.exit(code)
