"""What several commands share: the command as typed, signals, crashes, names and formats."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from tune_calib.cli import defaults
from tune_calib.cli.request import option_of
from tune_calib.console import echo
from tune_calib.errors import UserError, as_option
from tune_calib.spec.names import CRASHES
from tune_calib.spec.request import LadderRequest, SearchRequest
from tune_calib.text import command_line, format_count

if TYPE_CHECKING:
    DataRoot: TypeAlias = Path | None
    StoreRoot: TypeAlias = str | None
    StudyStorage: TypeAlias = str | None
else:
    DataRoot = option_of(LadderRequest, "data_root")
    StoreRoot = option_of(LadderRequest, "store")
    StudyStorage = option_of(SearchRequest, "study_storage")


def typed() -> str:
    """What was typed, and the user's own defaults as options, to do the same again."""
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    return command_line(["tune-calib", *given[:end], *defaults.words(), *given[end:]])


def typed_of(context: typer.Context, argument: str, *without: str) -> str:
    """The command as typed, for one of its arguments alone.

    Args:
        context: of the command.
        argument: in the place of all that were named.
        without: keys of options that named them too.
    """
    words = defaults.typed_options(context, without)
    return command_line(["tune-calib", context.command.name or "", argument, *words])


def stoppable(again: str, work: Callable[[], Any]) -> Any:
    """Do some work; a signal that stops it is one line that says how to go on."""
    from tune_calib.tuning.ray.stop import stop_signals

    def tell(name: str) -> None:
        echo(f"stopped by {name}; go on with: {again}", err=True)

    with stop_signals(tell) as stop:
        try:
            return work()
        except KeyboardInterrupt:
            raise typer.Exit(128 + stop.number) from None


def tell_crashed(crashed: list[str], again: str, folder: Any) -> None:
    """Say that trials crashed and what runs them again, and end with exit code 1; if any did."""
    if crashed:
        echo(
            f"{format_count(len(crashed), 'trial')} crashed; first: {as_option(crashed[0])}",
            err=True,
        )
        echo(f"try them again: {again}; tracebacks: {folder / CRASHES}", err=True)
        raise typer.Exit(1)


def one_format(**flags: bool) -> str:
    """The one format that is asked for; ``plain`` if none is."""
    asked = [name for name, is_asked in flags.items() if is_asked]
    if len(asked) > 1:
        raise UserError(f"ask for one format, not {' and '.join('--' + name for name in asked)}")
    return asked[0] if asked else "plain"
