"""How a command is shown and asked: examples in its help, a user's defaults under its options."""

import inspect
from typing import Any

from rich.markup import escape

from tune_calib.cli import defaults
from tune_calib.cli.entry import LiveCommand, OnceCommand
from tune_calib.cli.panels import EVERY
from tune_calib.console import echo

_HEAD = "\n\nExamples:\n"


class Command(OnceCommand):
    """A command whose docstring may end in a section ``Examples``, a command line a line.

    Attributes:
        examples: the command lines.
    """

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        text, _, lines = inspect.cleandoc(help or "").partition(_HEAD)
        self.examples = [line.strip() for line in lines.splitlines() if line.strip()]
        shown = ["Examples:", *(f"$ {line}" for line in self.examples)]
        settings["epilog"] = escape("\n".join(shown)) if self.examples else None
        super().__init__(name, help=text, **settings)

    def get_help_option(self, ctx: Any) -> Any:
        """The option ``--help``, in the group of what every command has."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = EVERY
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what is typed, and below it the user's own defaults.

        Raises:
            UserError: an option is given twice, or the file of defaults is wrong.
        """
        if ctx.parent is not None and not ctx.resilient_parsing:
            _, _, typed = self.make_parser(ctx).parse_args(args=list(args))
            ctx.default_map = defaults.below(ctx, typed)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Carry it out, and say first which options are the user's own defaults."""
        with defaults.in_force(ctx) as told:
            if told:
                echo(told, err=True)
            return super().invoke(ctx)


class LongCommand(Command, LiveCommand):
    """A command that takes its time, and shows what it does."""
