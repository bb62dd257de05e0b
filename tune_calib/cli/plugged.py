"""The option that every command has: plug-ins, which are registered while it runs."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tune_calib import plugins

_NAME = "plugin"
_Option = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE|MODULE", help="registers own methods, metrics, ...; repeatable"),
]


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option ``--plugin``."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        given = options.pop(_NAME) or []
        with plugins.restored():
            plugins.use([*plugins.installed(), *map(plugins.read, given)])
            command(**options)

    signature = inspect.signature(command)
    option = inspect.Parameter(
        _NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option
    )
    # Typer reads the options of a command from its signature.
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    return run
