"""The frame of every command: one-line errors, help with examples, the screen."""

import contextlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from tune_calib.cli import defaults
from tune_calib.cli.options import EVERY
from tune_calib.console import echo
from tune_calib.errors import FailedFigureWarning, UserError, describe_os_error, spell_settings
from tune_calib.progress import report_progress
from tune_calib.text import format_count

_ARGUMENTS = {"file", "ladder", "method", "methods", "tables"}
_EMPTY = re.compile(r"(--[\w-]+)=\s*")


def as_option(message: object) -> str:
    """Spell settings in a message as options (``--guard``) and arguments (``METHODS``)."""
    return spell_settings(
        message, lambda name: name.upper() if name in _ARGUMENTS else f"--{name.replace('_', '-')}"
    )


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn a user's mistake or an error of the system (no bug) into one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # characters that the encoding lacks
    try:
        try:
            yield
        finally:
            # Within the outer ``try``: a full disk shows only when the output is flushed.
            _flush()
    except UserError as error:
        _refuse(as_option(error))
    except TyperException as error:
        _refuse(error.format_message())
    except typer.Abort:
        sys.exit(130)  # as shells report an interrupt: 128 and the number of the signal
    except OSError as error:
        line = describe_os_error(error)
        if line is None:
            raise
        _refuse(line)


@contextlib.contextmanager
def collect_failed_figures() -> Iterator[list[str]]:
    """Collect the remarks on figures that fail in the block, and print the first."""
    remarks: list[str] = []
    show = warnings.showwarning

    def collect(message: Warning | str, category: type[Warning], *place: Any, **to: Any) -> None:
        if issubclass(category, FailedFigureWarning):
            remarks.append(str(message))
        else:
            show(message, category, *place, **to)

    with warnings.catch_warnings():
        warnings.simplefilter("always", FailedFigureWarning)
        warnings.showwarning = collect
        yield remarks
    if remarks:
        echo(f"{format_count(len(remarks), 'figure')} failed; first: {remarks[0]}", err=True)


def refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, which usually is an unset shell variable."""
    for previous, word in pairwise(["", *arguments]):
        name = ""
        if option := _EMPTY.fullmatch(word):
            name = option[1]
        elif not word.strip():
            name = previous if previous.startswith("--") else "an argument"
        if name:
            raise UserError(f"{name} is empty: give it a value, or leave it out")


class Command(TyperCommand):
    """A command with examples in its help; typed options override the user's own defaults."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        text, _, lines = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        self.examples = [line.strip() for line in lines.splitlines() if line.strip()]
        super().__init__(name, help=text, **settings)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help by group of options, without boxes, so that it fits two screens."""
        self.format_usage(ctx, formatter)
        formatter.write_text(self.help)
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                default = "Options" if isinstance(parameter, TyperOption) else "Arguments"
                panel = getattr(parameter, "rich_help_panel", None) or default
                groups.setdefault(panel, []).append(record)
        examples = [("$", line) for line in self.examples]
        for title, lines in {**groups, "Examples": examples}.items():
            formatter.write_heading(typer.style(title, bold=True))
            formatter.indent()
            formatter.write_dl(lines, col_spacing=1 if title == "Examples" else 2)
            formatter.dedent()
        page = getattr(self.callback, "page", "index")
        formatter.write_text(f"Documentation: docs/pages/{page}.md")

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = EVERY
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, typed = self.make_parser(ctx).parse_args(args=list(args))
        if ctx.parent is None or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        words, note = defaults.find_words(ctx, typed)
        try:
            refuse_empty(words)
            rest = super().parse_args(ctx, [*words, *args])
        except (UserError, TyperException) as error:
            if not words:
                raise
            message = error.format_message() if isinstance(error, TyperException) else error
            raise UserError(f"{message} ({note})") from None
        if note:
            echo(note, err=True)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a slow one shows its progress from the first second."""
        if not getattr(self.callback, "is_long", False):
            return super().invoke(ctx)

        from tune_calib.tuning.context import Context
        from tune_calib.tuning.progress.screen import screen

        words = [ctx.info_name]
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if value and parameter.param_type_name == "argument":
                words += value if isinstance(value, list | tuple) else [value]
        with screen(" ".join(map(str, words))) as view:
            report_progress("loading the program")
            ctx.obj = Context(view)
            return super().invoke(ctx)


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # Otherwise Python would complain about pending output at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader of the output stopped reading
            sys.exit(1)
        raise UserError(f"cannot write the output: {error.strerror}; send it elsewhere") from None


def _refuse(message: str) -> NoReturn:
    # If even stderr cannot be written to, the exit code remains.
    with contextlib.suppress(OSError):
        echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
