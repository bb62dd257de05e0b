"""Where work is shown: a live view in a terminal, a line a minute elsewhere."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from tune_calib.console import printable
from tune_calib.tuning.progress.progress import Progress

LINE_EVERY_S = 60.0
DRAW_EVERY_S = 0.5


class Shown:
    """Shows the work as a line a minute, and what takes long as a line at once."""

    every_s = 1.0

    def __init__(self) -> None:
        self._last = time.monotonic()

    def draw(self, record: Progress, at_once: bool) -> None:
        """Show the state of things; a pipe leaves out most of them."""
        if not at_once and time.monotonic() - self._last < LINE_EVERY_S:
            return
        from tune_calib.tuning.progress.view import line

        self._last = time.monotonic()
        self.say(line(record))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        """Leave the terminal to another program while the block runs."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Take away what does not stay."""


def shown_here() -> Shown:
    """Return a live view if stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        return Shown()
    from rich.console import Console

    return Shown() if Console(file=sys.stderr).is_dumb_terminal else _Terminal()


class _Terminal(Shown):
    """A live view, below what is printed meanwhile."""

    every_s = DRAW_EVERY_S

    def __init__(self) -> None:
        from rich.console import Console

        self._lock = threading.RLock()
        self._console = Console(file=sys.stderr)
        self._live: Any = None
        self._streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        for name, stream in self._streams.items():
            if stream.isatty():
                setattr(sys, name, _Above(stream, self))

    def draw(self, record: Progress, at_once: bool) -> None:
        from rich.live import Live

        from tune_calib.tuning.progress.view import View

        with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal was closed
            if self._live is None:
                # Of its own redirection rich breaks long lines, and sends stdout to stderr.
                self._live = Live(
                    console=self._console, transient=True, auto_refresh=False,
                    redirect_stdout=False, redirect_stderr=False,
                )  # fmt: skip
                self._live.start()
                # A signal that kills at once would leave a terminal without one.
                self._console.show_cursor(True)
            self._live.update(View(record), refresh=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def above(self, stream: Any, text: str) -> None:
        """Print something that stays; the view is drawn anew below it."""
        with self._lock:
            self._clear()
            stream.write(text)
            stream.flush()

    def say(self, text: str) -> None:
        self.above(self._streams["stderr"], f"{printable(text)}\n")

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        with self._lock:
            self._clear()
            yield

    def close(self) -> None:
        with self._lock:
            self._clear()
        for name, stream in self._streams.items():
            above = getattr(sys, name)
            if isinstance(above, _Above):
                above.close_line()
                setattr(sys, name, stream)


class _Above:
    """A stream of the terminal whose lines come to stand above the view."""

    def __init__(self, stream: Any, terminal: _Terminal) -> None:
        self._stream = stream
        self._terminal = terminal
        self._begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._terminal.above(self._stream, whole + newline)
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Nothing: whole lines are written at once, and of others the view would eat the rest."""

    def close_line(self) -> None:
        """Write what no line end followed."""
        self._stream.write(self._begun)
        self._stream.flush()
        self._begun = ""
