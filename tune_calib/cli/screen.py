"""What commands print for: the terminal as wide as it is, or what the options of tables say."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tune_calib.cli.added import with_options
from tune_calib.cli.panels import TABLES

_Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="these columns of the table on the screen",
        show_default="those that fit",
        rich_help_panel=TABLES,
    ),
]
_Wide = Annotated[
    bool, typer.Option("--wide", help="all columns, however wide", rich_help_panel=TABLES)
]


def on_terminal(command: Callable[..., object]) -> Callable[..., None]:
    """A command whose tables are as wide as the terminal."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        from tune_calib import console

        with console.shown_on(console.terminal()):
            command(**options)

    return run


def with_tables(command: Callable[..., object]) -> Callable[..., None]:
    """A command with the options ``--columns`` and ``--wide``."""

    @functools.wraps(command)
    def run(columns: str | None, wide: bool, **options: Any) -> None:
        from tune_calib import console

        with console.shown_on(console.of_user(columns, wide)):
            command(**options)

    return with_options(run, command, columns=(_Columns, None), wide=(_Wide, False))
