"""The option of commands that run trials: programs that follow them."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tune_calib.cli.added import with_options
from tune_calib.spec.request import EXTRAS

_Log = Annotated[
    list[str] | None,
    typer.Option(
        help="follow the trials in tensorboard, wandb or mlflow; repeatable",
        rich_help_panel=EXTRAS,
    ),
]


def with_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the option ``--log``."""

    @functools.wraps(command)
    def run(log: list[str] | None, **options: Any) -> Any:
        if not log or options.get("dry_run"):
            return command(**options)

        from tune_calib.api.logged import logged

        with logged(log):
            try:
                return command(**options)
            except typer.Exit as ended:  # of trials that crashed; the others are sent
                code = ended
        raise code

    return with_options(run, command, log=(_Log, None))
