"""Options that are put on commands from outside."""

import inspect
from collections.abc import Callable
from typing import Any


def with_options(
    run: Callable[..., None], command: Callable[..., object], **options: tuple[Any, Any]
) -> Callable[..., None]:
    """A function that takes further options and carries a command out.

    Args:
        run: takes the parameters of the command and the options, all by name.
        command: what it carries out.
        options: annotation and default by name.
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
