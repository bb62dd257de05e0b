"""What commands print for: the terminal as wide as it is, or what the options of tables say."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_calib.cli.added import with_options
from tune_calib.cli.panels import TABLES
from tune_calib.errors import UserError

if TYPE_CHECKING:
    from tune_calib.console import Screen

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


def of_user(columns: str | None, is_wide: bool) -> "Screen":
    """The screen that a user asks for by ``--columns`` and ``--wide``.

    Raises:
        UserError: both are given.
    """
    from tune_calib import console

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

        with console.shown_on(of_user(columns, wide)):
            command(**options)

    return with_options(run, command, columns=(_Columns, None), wide=(_Wide, False))
