"""The command line. Slow imports are inside the commands, so that ``--help`` is fast."""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from tune_calib.cli import import_export, look_up, read, reproduce, run, statistics
from tune_calib.cli.entry import Command, collect_failed_figures, one_line, refuse_empty
from tune_calib.cli.options import Kind, with_shared_options
from tune_calib.console import echo

_PLAIN = Kind()
_TRIALS = Kind(is_long=True, trains=True, logs=True)
_TRAINING = Kind(is_long=True, trains=True)
_LONG = Kind(is_long=True)
_REPORT = Kind(is_long=True, has_table=True)
_TABLE = Kind(has_table=True)

_COMMANDS: tuple[tuple[str, Callable[..., object], Kind, str], ...] = (
    ("Run", run.ablate, _TRIALS, "ladders"),
    ("Run", run.compare, _TRIALS, "ladders"),
    ("Run", run.search, _TRIALS, "searching"),
    ("Run", run.resume, _TRIALS, "searching"),
    ("Run", run.evaluate, _TRIALS, "searching"),
    ("Run", run.run, _TRIALS, "experiment-files"),
    ("Run", reproduce.reproduce, _TRAINING, "reproduce"),
    ("Read results", read.report, _REPORT, "analysis"),
    ("Read results", read.status, _PLAIN, "running"),
    ("Look up", look_up.list_, _TABLE, "commands"),
    ("Look up", look_up.explain, _PLAIN, "methods/index"),
    ("Your own networks and methods", import_export.import_, _LONG, "own-network"),
    ("Your own networks and methods", import_export.export, _TRAINING, "own-network"),
    ("Your own networks and methods", import_export.check_method, Kind(trains=True), "adding"),
    ("Look up", import_export.check_gpu, Kind(trains=True), "gpu"),
)
"""Panel, function, kind and documentation page of each command."""

_STATISTICS: tuple[Callable[..., object], ...] = (
    statistics.ranks, statistics.averages, statistics.significance, statistics.benchmark,
    statistics.diff, statistics.interaction, statistics.effects,
    statistics.sensitivity, statistics.importance,
)  # fmt: skip

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
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


def _add(
    group: typer.Typer, panel: str, command: Callable[..., object], kind: Kind, page: str
) -> None:
    shared = with_shared_options(command, kind)
    vars(shared).update(page=page, trains=kind.trains, is_long=kind.is_long)
    group.command(
        command.__name__.strip("_").replace("_", "-"),
        cls=Command,
        rich_help_panel=panel,
        context_settings=_SETTINGS,
    )(shared)


for _panel, _command, _kind, _page in _COMMANDS:
    _add(app, _panel, _command, kind=_kind, page=_page)
for _statistics in _STATISTICS:
    _add(analyze, "Commands", _statistics, kind=_TABLE, page="analysis")
app.add_typer(analyze, name="analyze", rich_help_panel="Read results", no_args_is_help=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; a user's mistake is one line and exit code 2."""
    os.environ["MPLBACKEND"] = "Agg"  # figures of plug-ins are drawn without a screen
    # With torch and pandas loaded, each search for garbage is long: with the usual thresholds they
    # take a tenth of the time of a short command.
    gc.set_threshold(50_000, 20, 20)
    if arguments is None:
        arguments = sys.argv[1:]
    with one_line(), collect_failed_figures() as failed_figures:
        refuse_empty(arguments)
        # Otherwise Typer prints a usage error of several lines and exits itself.
        code = app(args=arguments, prog_name="tune-calib", standalone_mode=False)
    sys.exit(code or int(bool(failed_figures)))
