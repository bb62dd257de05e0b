"""What surrounds every command: a user's mistake is one line, and so is what the system refuses."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from tune_calib.console import echo
from tune_calib.errors import UserError, as_option, describe_os_error, locate_error
from tune_calib.progress import report_progress

_EMPTY = re.compile(r"(--[\w-]+)=\s*")


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn a user's mistake, and what the system refuses of paths and output, into exit code 2.

    A defect of the program stays a traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # of characters that the encoding does not have
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
        # As shells tell an interrupt: 128 and the number of the signal.
        sys.exit(130)
    except OSError as error:
        line = describe_os_error(error)
        if line is None:
            raise
        _refuse(line)


@contextlib.contextmanager
def damage_in_one_line(where: str) -> Iterator[None]:
    """Turn any failure to read results into one line, which names the line of the program too.

    Raises:
        UserError: reading them failed in some way.
    """
    try:
        yield
    except Exception as error:
        is_of_system = isinstance(error, OSError) and describe_os_error(error) is not None
        if is_of_system or isinstance(error, UserError | typer.Exit | TyperException):
            raise
        found = locate_error(
            error, lambda path: "site-packages" not in path, lambda path: Path(path).name
        )
        raise UserError(
            f"{where} cannot be read ({found}): its files are damaged or not written by "
            "tune-calib, or this is a defect to report"
        ) from error


def reads_folders(command: Callable[..., object]) -> Callable[..., None]:
    """Let a command refuse damaged results in one line; of published tables there are none."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        named = options.get("dirs") or [options.get("first"), options.get("second")]
        folders = [each for each in named if each]
        with damage_in_one_line(" or ".join(folders)) if folders else contextlib.nullcontext():
            command(**options)

    return run


def refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an argument of nothing: mostly a shell variable that is not set.

    Raises:
        UserError: there is one.
    """
    for index, word in enumerate(arguments):
        option = _EMPTY.fullmatch(word)
        if option or not word.strip():
            before = arguments[index - 1] if index else ""
            name = option[1] if option else before if before.startswith("--") else "an argument"
            raise UserError(f"{name} is empty: give it a value, or leave it out")


class OnceCommand(TyperCommand):
    """A command of which an option that takes one value is given once; Typer takes the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is given twice.

        Raises:
            UserError: an option is.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            # Arguments have no ``is_flag``: they are left alone, as if they were flags.
            takes_one = not (getattr(option, "is_flag", True) or getattr(option, "multiple", False))
            if takes_one and given.count(option) > 1:
                raise UserError(f"{option.opts[0]} is given twice; give it once")
        return super().parse_args(ctx, args)


class LiveCommand(OnceCommand):
    """A command that takes its time: from the first second it shows what it does."""

    def invoke(self, ctx: Any) -> Any:
        """Carry the command out under a screen."""
        from tune_calib.tuning.progress.screen import screen

        named = [ctx.params.get(p.name) for p in self.params if p.param_type_name == "argument"]
        words = [word for each in named if each for word in _listed(each)]
        with screen(" ".join([str(ctx.info_name), *words])):
            report_progress("loading the program")
            return super().invoke(ctx)


def _listed(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]


def _flush() -> None:
    """Write out what was printed, while an error of it can still be told.

    Raises:
        UserError: it cannot be written.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has enough of it
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _drop_output()
        raise UserError(f"cannot write the output: {error.strerror}; send it elsewhere") from None


def _drop_output() -> None:
    """Send what is still to be written to nowhere: Python would complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str) -> NoReturn:
    # Where even stderr cannot be written the exit code still tells.
    with contextlib.suppress(OSError):
        echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
