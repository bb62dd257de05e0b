"""Helpers shared by commands: typed commands, signals, plans, formats, folders."""

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import typer

from tune_calib.cli.entry import as_option
from tune_calib.console import echo, shown
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.results.folders import describe_unloaded, find_entries, refuse_empty
from tune_calib.spec.names import CRASHES
from tune_calib.text import format_count

if TYPE_CHECKING:
    from tune_calib.api.opened import OpenRun, OpenSearch
    from tune_calib.tuning.plan import Plan

UNFINISHED = 3
"""Exit code of a run that the limit of time ended before its last trial."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def published_tables() -> Iterable[str]:
    from analysis.published import describe_published

    return describe_published()


@contextlib.contextmanager
def stoppable(again: str) -> Iterator[None]:
    """If a signal stops the block, print the command that continues it and exit.

    A second signal kills at once. Handlers raise KeyboardInterrupt, which does not contain the
    signal: while Ray waits, it lets no other exception through and raises its own.
    """
    stopped_by: int = signal.SIGINT

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = number
        for stop_signal in _STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError, OSError):  # it interrupted another print
            echo(f"stopped by {signal.Signals(number).name}; continue with: {again}", err=True)
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(128 + stopped_by) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def exit_if_unfinished(results: "OpenRun | OpenSearch", again: str) -> None:
    """Print the command that completes a run, and exit: with code 1 if trials crashed."""
    if results.crashed:
        count = format_count(len(results.crashed), "trial")
        echo(f"{count} crashed; first: {results.crashed[0]}", err=True)
        echo(f"run them again: {again}; tracebacks: {results.out / CRASHES}", err=True)
        raise typer.Exit(1)
    if results.stopped:
        echo(f"{results.stopped}; continue with: {again}", err=True)
        raise typer.Exit(UNFINISHED)


def one_format(**flags: bool) -> str:
    chosen = list(filter(flags.get, flags))
    if len(chosen) > 1:
        raise UserError(f"choose one format, not --{' and --'.join(chosen)}")
    return next(iter(chosen), "plain")


def print_plan(plan: "Plan") -> None:
    from tune_calib.tuning.plan import describe

    echo(shown(describe(plan)))


def open_folder(out: str, runs_plugins: bool = False) -> AnyPath:
    """Return a folder of results; print a note on plug-ins that are not loaded, or refuse them."""
    folder = parse_path(out)
    if not find_entries(folder):
        refuse_empty(folder)
    if note := describe_unloaded(folder, runs_plugins):
        echo(f"note: {as_option(note)}", err=True)
    return folder


def print_each(folder: AnyPath, describe: Callable[[AnyPath], str]) -> None:
    """Print a description of a folder, or of each entry of an experiment file that has one."""
    entries = find_entries(folder)
    refused = 0
    for path in entries or [folder]:
        try:
            open_folder(str(path))
            text = as_option(shown(describe(path)))
        except UserError as error:
            if not entries:
                raise
            text, refused = f"error: {as_option(error)}", refused + 1
        echo(f"== {path.name} ==\n{text}\n" if entries else text)
    if refused:  # the other entries are printed nevertheless
        raise typer.Exit(1)


def write_overview(folder: AnyPath) -> list[str]:
    entries = find_entries(folder)
    if not entries:
        return []

    from analysis.experiment_file.overview import write_overview as write

    return [f"page over all entries: {write(folder, entries)}"]
