"""The option that every command has: plug-ins, which are registered while it runs."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tune_calib.cli.added import with_options
from tune_calib.cli.panels import EVERY
from tune_calib.spec import plugins

_Plugin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|MODULE",
        help="registers own methods, metrics, ...; repeatable",
        rich_help_panel=EVERY,
    ),
]


def with_plugins(command: Callable[..., object], trains: bool) -> Callable[..., None]:
    """Add the option ``--plugin`` to a command.

    Args:
        command: the command.
        trains: it runs methods, and so the plug-ins that the user's file of defaults names. The
            others only read: they run none but those that are typed.
    """

    @functools.wraps(command)
    def run(plugin: list[str] | None, **options: Any) -> None:
        with plugins.restored():
            plugins.use([*plugins.installed(), *map(plugins.read, plugin or [])])
            command(**options)

    run.trains = trains  # type: ignore[attr-defined]
    return with_options(run, command, plugin=(_Plugin, None))


def trains(command: Any) -> bool:
    """Return whether a command of the program was declared to train."""
    return bool(getattr(command.callback, "trains", False))
