"""The option of commands that run trials: programs that follow them."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

_NAME = "log"
_Option = Annotated[
    list[str] | None,
    typer.Option(help="follow the trials in tensorboard, wandb or mlflow; repeatable"),
]


def with_log(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option ``--log``."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        names = options.pop(_NAME) or []
        if not names:
            command(**options)
            return

        from tune_calib.api.logged import logged

        code: typer.Exit | None = None
        with logged(names):
            try:
                command(**options)
            except typer.Exit as ended:  # of trials that crashed; the others are sent
                code = ended
        if code is not None:
            raise code

    signature = inspect.signature(command)
    option = inspect.Parameter(
        _NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option
    )
    # Typer reads the options of a command from its signature.
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    return run
