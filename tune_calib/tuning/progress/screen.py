"""The screen of a process, which shows its progress here and writes it for watchers elsewhere.

A process has one screen; nested requests get the one that is open.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tune_calib.errors import UserError
from tune_calib.progress import ProgressEvent, listening
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.progress.display import open_display
from tune_calib.tuning.progress.tracker import Tracker

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath

FILE_EVERY_S = 2.0
REMOTE_EVERY_S = 20.0
"""Seconds between two versions of the file for watchers: object stores charge for each."""

POLL_EVERY_S = 1.0
"""Seconds between two reads of the workers' events."""


class Screen:
    """The progress of this process, and the display that shows it while ``screen`` is open."""

    def __init__(self, title: str) -> None:
        self.tracker = Tracker(title)
        self.display = open_display()

    def receive(self, event: ProgressEvent) -> None:
        """Show an event of the driver itself."""
        self.tracker.set_event(event)
        if event.at_once:
            self.draw(at_once=True)

    def draw(self, at_once: bool = False) -> None:
        """Show the progress of this moment."""
        self.display.draw(self.tracker.record(), at_once)

    @contextlib.contextmanager
    def written_to(self, folder: "AnyPath") -> Iterator[None]:
        """Write the record for watchers of a folder while the block runs."""
        every_s = FILE_EVERY_S if isinstance(folder, Path) else REMOTE_EVERY_S

        def write() -> None:
            # A folder that was moved is not created again; the driver notices.
            if isinstance(folder, Path) and not folder.is_dir():
                return
            # No result is lost with it; on a full disk the trials themselves fail.
            with contextlib.suppress(UserError):
                self.tracker.record(every_s).write(folder)

        try:
            with _repeated(write, every_s):
                write()
                yield
        finally:
            with contextlib.suppress(OSError, UserError):
                (folder / PROGRESS).unlink()

    @contextlib.contextmanager
    def phase(
        self,
        title: str,
        total: int,
        unit: str,
        kinds: Mapping[str, int],
        read_events: Callable[[Sequence[str]], Mapping[str, ProgressEvent]] | None = None,
    ) -> Iterator[None]:
        """Show a bar and the running Ray trials while the block executes them.

        Args:
            title: of the phase, e.g. ``networks and heads``.
            total: units of the bar.
            unit: of the bar, e.g. ``trials``.
            kinds: the total of each kind of Ray trial.
            read_events: returns the latest events of Ray trials by name.
        """
        self.tracker.begin(title, total, unit, kinds)
        started = time.monotonic()

        def poll() -> None:
            if read_events is not None and (running := self.tracker.running):
                self.tracker.update(read_events(running))

        from tune_calib.tuning.progress.view import format_summary

        try:
            with _repeated(poll, POLL_EVERY_S):
                yield
            # Not after an interrupt, whose last line says how to go on.
            self.display.print(format_summary(self.tracker.record(), time.monotonic() - started))
        finally:
            self.tracker.begin("", 0, "", {})


_screens: list[Screen] = []


@contextlib.contextmanager
def screen(title: str = "") -> Iterator[Screen]:
    """Use the screen of this process; open one for the block if there is none."""
    if _screens:
        yield _screens[-1]
        return
    own = Screen(title)
    _screens.append(own)
    try:
        with listening(own.receive), _repeated(own.draw, own.display.every_s):
            own.draw()
            yield own
    finally:
        own.display.close()
        _screens.remove(own)


@contextlib.contextmanager
def show_driver(folder: "AnyPath") -> Iterator[None]:
    """Show the driver of a folder, which this process has locked, here and to watchers."""
    with screen() as own, own.written_to(folder):
        yield


def show_entry(entry: str) -> None:
    """Show the current entry of an experiment file."""
    if (tracker := current_tracker()) is not None:
        tracker.set_entry(entry)


def current_tracker() -> Tracker | None:
    """Return the tracker of the open screen, if there is one."""
    return _screens[-1].tracker if _screens else None


@contextlib.contextmanager
def _repeated(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Repeat an action in a thread while the block runs."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(every_s):
            action()

    thread = threading.Thread(target=run, daemon=True, name="tune-calib screen")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
