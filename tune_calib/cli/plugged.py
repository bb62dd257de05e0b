"""The option that every command has: plug-ins, which are registered while it runs."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tune_calib import plugins
from tune_calib.cli.added import with_options
from tune_calib.cli.panels import EVERY

_Plugin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|MODULE",
        help="registers own methods, metrics, ...; repeatable",
        rich_help_panel=EVERY,
    ),
]


def with_plugins(command: Callable[..., object]) -> Callable[..., None]:
    """A command with the option ``--plugin``."""

    @functools.wraps(command)
    def run(plugin: list[str] | None, **options: Any) -> None:
        with plugins.restored():
            plugins.use([*plugins.installed(), *map(plugins.read, plugin or [])])
            command(**options)

    return with_options(run, command, plugin=(_Plugin, None))
