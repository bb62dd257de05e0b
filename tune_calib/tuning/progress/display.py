"""Displays of progress: a live view in a terminal, a line a minute elsewhere."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tune_calib.console import printable
from tune_calib.tuning.progress.tracker import Progress

LINE_EVERY_S = 60.0
DRAW_EVERY_S = 0.5


class LineDisplay:
    """Prints a line a minute, and urgent events at once."""

    every_s = 1.0

    def __init__(self) -> None:
        self._last = time.monotonic()

    def draw(self, record: Progress, at_once: bool) -> None:
        """Show a record; most of them are skipped."""
        if not at_once and time.monotonic() - self._last < LINE_EVERY_S:
            return
        from tune_calib.tuning.progress.view import format_line

        self._last = time.monotonic()
        self.print(format_line(record))

    def print(self, line: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(OSError, ValueError):  # the reader has gone
            sys.stderr.write(f"{printable(line)}\n")
            sys.stderr.flush()

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        """Leave the terminal to another program while the block runs."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Remove whatever does not stay."""


def open_display() -> LineDisplay:
    """Open a live view if stderr is a terminal, and a display of lines otherwise."""
    if not sys.stderr.isatty():
        return LineDisplay()
    from rich.console import Console

    console = Console(file=sys.stderr)
    return LineDisplay() if console.is_dumb_terminal else _LiveDisplay(console)


class _LiveDisplay(LineDisplay):
    """Draws a live view below whatever is printed meanwhile."""

    every_s = DRAW_EVERY_S

    def __init__(self, console: Any) -> None:
        self._lock = threading.RLock()
        self._console = console
        self._live: Any = None
        self._streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        for name, stream in self._streams.items():
            if stream.isatty():
                setattr(sys, name, _LinesAbove(stream, self))

    def draw(self, record: Progress, at_once: bool) -> None:
        from rich.live import Live

        from tune_calib.tuning.progress.view import View

        with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal was closed
            if self._live is None:
                # The redirection of rich breaks long lines, and sends stdout to stderr.
                self._live = Live(
                    console=self._console, transient=True, auto_refresh=False,
                    redirect_stdout=False, redirect_stderr=False,
                )  # fmt: skip
                self._live.start()
                # A signal that kills at once must not leave a terminal without a cursor.
                self._console.show_cursor(True)
            self._live.update(View(record), refresh=True)

    def print_above(self, stream: Any, text: str) -> None:
        """Print text that stays; the next drawing is below it."""
        with self.hidden():
            stream.write(text)
            stream.flush()

    def print(self, line: str) -> None:
        self.print_above(self._streams["stderr"], f"{printable(line)}\n")

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None  # rich cannot start it again elsewhere
            yield

    def close(self) -> None:
        with self.hidden():
            for name, stream in self._streams.items():
                above = getattr(sys, name)
                if isinstance(above, _LinesAbove):
                    stream.write(above.begun)
                    stream.flush()
                    setattr(sys, name, stream)


class _LinesAbove:
    """A stream of the terminal whose whole lines are printed above the live view."""

    def __init__(self, stream: Any, display: _LiveDisplay) -> None:
        self._stream = stream
        self._display = display
        self.begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        whole, newline, self.begun = (self.begun + text).rpartition("\n")
        if newline:
            self._display.print_above(self._stream, whole + newline)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: the view would overwrite a line that has not ended."""
