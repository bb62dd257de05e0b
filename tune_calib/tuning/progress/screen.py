"""Show the progress of this process, and write it to a file for watchers elsewhere."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.live import Live

from tune_calib.console import echo, printable
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import unseal
from tune_calib.files.paths import AnyPath
from tune_calib.progress import ProgressEvent, listening
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.progress.tracker import (
    PROGRESS_RECORD,
    Progress,
    Tracker,
    draw_view,
    format_line,
    format_summary,
)

LINE_EVERY_S = 60.0
DRAW_EVERY_S = 0.5
FILE_EVERY_S = 2.0
REMOTE_EVERY_S = 20.0  # object stores charge for each write


class LineDisplay:
    """Prints a line a minute, and urgent events at once."""

    every_s = 1.0

    def __init__(self) -> None:
        self._last = time.monotonic()

    def draw(self, record: Progress, is_urgent: bool) -> None:
        """Show a record, at most once a minute unless it is urgent."""
        if not is_urgent and time.monotonic() - self._last < LINE_EVERY_S:
            return
        self._last = time.monotonic()
        self.print(format_line(record))

    def print(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed
            sys.stderr.write(f"{printable(line)}\n")
            sys.stderr.flush()

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        """Leave the terminal to another program while the block runs."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Remove the live view."""
        with self.hidden():
            pass


def open_display() -> LineDisplay:
    if not sys.stderr.isatty():
        return LineDisplay()
    # By default, rich breaks long lines and interprets brackets as markup.
    console = Console(file=sys.stderr, soft_wrap=True, markup=False, highlight=False, emoji=False)
    return LineDisplay() if console.is_dumb_terminal else _LiveDisplay(console)


class _LiveDisplay(LineDisplay):
    """Draws a live view; rich prints the lines of other code above it."""

    every_s = DRAW_EVERY_S

    def __init__(self, console: Console) -> None:
        self._lock = threading.RLock()
        self._console = console
        self._live: Live | None = None

    def draw(self, record: Progress, is_urgent: bool) -> None:
        with self._lock:
            if self._live is None:
                self._live = Live(
                    console=self._console,
                    transient=True,
                    auto_refresh=False,
                    redirect_stdout=sys.stdout.isatty(),
                )
                self._live.start()
                # Otherwise a kill would leave the terminal without a cursor.
                self._console.show_cursor(True)
            self._live.update(draw_view(record, self._console), refresh=True)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        with self._lock:
            if self._live is not None:
                # Otherwise rich would lose an unfinished line.
                sys.stdout.flush()
                sys.stderr.flush()
                self._live.update("")  # ``stop`` draws once more
                self._live.stop()
                self._live = None  # rich cannot restart it at another position
            yield


class Screen:
    """The progress of this process, and the display that shows it while ``screen`` is open."""

    def __init__(self, title: str) -> None:
        self.tracker = Tracker(title)
        self.display = open_display()

    @contextlib.contextmanager
    def phase(self, title: str, total: int, unit: str, kinds: Mapping[str, int]) -> Iterator[None]:
        """Show a bar of ``total`` units while the block runs Ray trials, counted by kind."""
        self.tracker.begin(title, total, unit, kinds=kinds)
        started = time.monotonic()
        try:
            yield
            # Not after an interrupt, whose last line tells how to continue.
            self.display.print(format_summary(self.tracker.record(), time.monotonic() - started))
        finally:
            self.tracker.begin("", 0, "", kinds={})


@contextlib.contextmanager
def screen(title: str) -> Iterator[Screen]:
    """Open a screen, which shows the progress events of the block."""
    opened = Screen(title)

    def draw(is_urgent: bool = False) -> None:
        opened.display.draw(opened.tracker.record(), is_urgent)

    def receive(event: ProgressEvent) -> None:
        opened.tracker.set(event=event)
        if event.is_urgent:
            draw_safely(True)

    try:
        with (
            _repeated(draw, "showing the progress", opened.display.every_s) as draw_safely,
            listening(receive),
        ):
            draw_safely()
            yield opened
    finally:
        opened.display.close()


@contextlib.contextmanager
def show_driver(folder: AnyPath, tracker: Tracker) -> Iterator[None]:
    """Show watchers the progress of a folder that this process has locked."""
    every_s = FILE_EVERY_S if isinstance(folder, Path) else REMOTE_EVERY_S

    def write() -> None:
        # A folder that was moved must not be created again; the driver reports it.
        if isinstance(folder, Path) and not folder.is_dir():
            return
        tracker.record(every_s).write(folder)

    try:
        # A missing file loses no result; on a full disk the trials themselves fail.
        with _repeated(write, f"writing {folder / PROGRESS}", every_s) as write_safely:
            write_safely()
            yield
    finally:
        with contextlib.suppress(OSError, UserError):
            (folder / PROGRESS).unlink()


@contextlib.contextmanager
def _repeated(
    action: Callable[..., None], doing: str, every_s: float
) -> Iterator[Callable[..., None]]:
    """Repeat an action, which the block can also carry out, in a thread; print its first error."""
    is_over, has_failed = threading.Event(), threading.Event()

    def act(*arguments: Any) -> None:
        try:
            action(*arguments)
        except UserError:  # of a disk or folder, which the run reports when it writes there
            pass
        except Exception as error:
            if not has_failed.is_set():
                reason = f"{type(error).__name__}: {error}"
                echo(f"{doing} failed ({reason}); the run goes on", err=True)
            has_failed.set()

    def run() -> None:
        while not is_over.wait(every_s):
            act()

    thread = threading.Thread(target=run, daemon=True, name="tune-calib screen")
    thread.start()
    try:
        yield act
    finally:
        is_over.set()
        thread.join()


SILENT_S = 120.0  # beyond ``every_s``, after which a driver counts as dead; clocks may differ
READ_EVERY_S = 1.0


def read_progress(folder: AnyPath) -> Progress | None:
    """Return the last record of a folder's driver, or None if there is no driver."""
    path = folder / PROGRESS
    if not path.exists():
        return None
    try:
        content = unseal(path.read_bytes(), path)
        return PROGRESS_RECORD.validate_json(json.dumps(content), strict=True)
    except FileNotFoundError:  # the driver has just ended
        return None
    except (ValidationError, DamagedFileError):
        raise DamagedFileError(f"{path} is damaged; remove it if no driver is running") from None


def is_dead(record: Progress, now: float) -> bool:
    """Return whether a driver died without removing its file; ``now`` is in seconds since 1970."""
    return now - record.written - record.every_s > SILENT_S


def is_running(folder: AnyPath) -> bool:
    record = read_progress(folder)
    return record is not None and not is_dead(record, time.time())


def describe_driver(folder: AnyPath) -> str:
    """Describe what the driver of a folder does, or its death; return "" if there is none."""
    record = read_progress(folder)
    if record is None:
        return ""
    where = f"process {record.process} on {record.host}"
    if is_dead(record, time.time()):
        ago = round(time.time() - record.written)
        return f"its driver ({where}) died; its last update was {ago} s ago"
    return f"at work ({where}): {format_line(record)}"


def watch(folder: AnyPath) -> bool:
    """Show the driver of a folder until it ends; return False if it died."""
    display, is_first = open_display(), True
    try:
        while (record := read_progress(folder)) is not None:
            if is_dead(record, time.time()):
                return False
            display.draw(record, is_urgent=is_first)
            is_first = False
            time.sleep(READ_EVERY_S)
    finally:
        display.close()
    return True
