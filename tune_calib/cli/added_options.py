"""Options that commands get from outside: plug-ins, loggers, columns of their tables."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from tune_calib import console
from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.request import ALWAYS, EXTRAS

TABLES = "Tables"
FORMATS = "Format"
EVERY = "Every command"


def with_options(
    run: Callable[..., None], command: Callable[..., object], **options: tuple[Any, Any]
) -> Callable[..., None]:
    """Give a function the parameters of a command and further options.

    Args:
        run: Takes the parameters of the command and the options, all by name.
        command: What it calls.
        options: Annotation and default of each option.
    """
    signature = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in options.items()
    ]
    # Typer reads the options of a command from its signature.
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    return run


_Plugin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|MODULE",
        help=ALWAYS["plugin"],
        rich_help_panel=EVERY,
    ),
]


def with_plugins(command: Callable[..., object], trains: bool) -> Callable[..., None]:
    """Add the option ``--plugin`` to a command.

    Args:
        command: The command.
        trains: Whether it runs methods, and so the plug-ins that the user's file of defaults
            names. Other commands only read: they run no plug-in but those that are typed.
    """

    @functools.wraps(command)
    def run(plugin: list[str] | None, **options: Any) -> None:
        with plugins.restored():
            plugins.use([*plugins.installed(), *map(plugins.read, plugin or [])])
            command(**options)

    run.trains = trains  # type: ignore[attr-defined]
    return with_options(run, command, plugin=(_Plugin, None))


_Log = Annotated[
    list[str] | None,
    typer.Option(
        help=ALWAYS["log"],
        rich_help_panel=EXTRAS,
    ),
]


def with_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--log`` to a command."""

    @functools.wraps(command)
    def run(log: list[str] | None, **options: Any) -> Any:
        if not log or options.get("dry_run"):
            return command(**options)

        from tune_calib.api.logged import logged

        with logged(log):
            try:
                return command(**options)
            except typer.Exit as ended:  # trials crashed; the others are sent all the same
                code = ended
        raise code

    return with_options(run, command, log=(_Log, None))


_Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="show these columns of the table",
        show_default="those that fit",
        rich_help_panel=TABLES,
    ),
]
_Wide = Annotated[
    bool, typer.Option("--wide", help="show all columns, however wide", rich_help_panel=TABLES)
]


def chosen_screen(columns: str | None, is_wide: bool) -> console.Screen:
    """Return the screen that ``--columns`` and ``--wide`` describe.

    Raises:
        UserError: Both are given.
    """
    if columns is not None and is_wide:
        raise UserError("--wide shows all columns and --columns some; give one of them")
    names = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    return replace(
        console.WIDE if is_wide else console.terminal(),
        columns=names,
        more="--wide shows all",
        some=", --columns NAME,NAME some",
    )


def on_terminal(command: Callable[..., object]) -> Callable[..., None]:
    """Make the tables of a command as wide as the terminal."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        with console.shown_on(console.terminal()):
            command(**options)

    return run


def with_tables(command: Callable[..., object]) -> Callable[..., None]:
    """Add the options ``--columns`` and ``--wide`` to a command."""

    @functools.wraps(command)
    def run(columns: str | None, wide: bool, **options: Any) -> None:
        with console.shown_on(chosen_screen(columns, wide)):
            command(**options)

    return with_options(run, command, columns=(_Columns, None), wide=(_Wide, False))
