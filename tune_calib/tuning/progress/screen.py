"""The screen of a process: what its driver does is shown here, and written for those who watch.

There is one screen a process; who asks for another is given the one that is there.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tune_calib.errors import UserError
from tune_calib.progress import Activity, listening
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.progress.shown import shown_here
from tune_calib.tuning.progress.work import Work

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath

FILE_EVERY_S = 2.0
REMOTE_EVERY_S = 20.0
"""Seconds between two versions of the file that others watch: an object store asks a price."""

HEAR_EVERY_S = 1.0
"""Seconds between two questions to the Ray trials what they do."""


class Screen:
    """What one process shows of its work.

    Args:
        title: of what is done, e.g. ``ablate mac_cal``.
    """

    def __init__(self, title: str) -> None:
        self.work = Work(title)
        self._shown = shown_here()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Show until the block ends."""
        try:
            with listening(self._hear), _repeated(self._draw, self._shown.every_s):
                self._draw()
                yield
        finally:
            self._shown.close()

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        """Leave the terminal to another program while the block runs."""
        return self._shown.hidden()

    def _hear(self, activity: Activity) -> None:
        self.work.show(activity)
        if activity.at_once:
            self._draw(at_once=True)

    def _draw(self, at_once: bool = False) -> None:
        self._shown.draw(self.work.record(), at_once)

    @contextlib.contextmanager
    def kept_in(self, folder: "AnyPath") -> Iterator[None]:
        """Let others watch: write the state of things into a folder while the block runs.

        Args:
            folder: whose driver this process is.
        """
        every_s = FILE_EVERY_S if isinstance(folder, Path) else REMOTE_EVERY_S

        def write() -> None:
            # One that was moved is not made again; the driver notices.
            if isinstance(folder, Path) and not folder.is_dir():
                return
            # Nothing is lost with it: on a full disk the trials themselves tell.
            with contextlib.suppress(UserError):
                self.work.record(every_s).write(folder)

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
        hear: Callable[[Sequence[str]], Mapping[str, Activity]] | None = None,
    ) -> Iterator[None]:
        """Show a bar, and what runs, while the block carries Ray trials out.

        Args:
            title: what they do, e.g. ``networks and heads``.
            total: what the bar goes to.
            unit: what it counts, e.g. ``trials``.
            kinds: how much there is to do of each kind of Ray trial.
            hear: asks Ray trials, by their names, what they do.
        """
        self.work.begin(title, total, unit, kinds)
        started = time.monotonic()

        def listen() -> None:
            if hear is not None and (running := self.work.running):
                self.work.hear(hear(running))

        from tune_calib.tuning.progress.view import summary

        try:
            with _repeated(listen, HEAR_EVERY_S):
                yield
            # Of one that was stopped, how to go on is the last word.
            self._shown.say(summary(self.work.record(), time.monotonic() - started))
        finally:
            self.work.begin("", 0, "", {})


_screens: list[Screen] = []


@contextlib.contextmanager
def screen(title: str = "") -> Iterator[Screen]:
    """The screen of this process; if there is none, one that lasts as long as the block.

    Args:
        title: of what is done; of a screen that is there the title stays.
    """
    if _screens:
        yield _screens[-1]
        return
    new = Screen(title)
    _screens.append(new)
    try:
        with new.open():
            yield new
    finally:
        _screens.remove(new)


@contextlib.contextmanager
def at_work(folder: "AnyPath") -> Iterator[None]:
    """Show the work of the driver of a folder, also to those who watch the folder.

    Args:
        folder: which this process holds the lock of.
    """
    with screen() as shown, shown.kept_in(folder):
        yield


def show_entry(entry: str) -> None:
    """Show which entry of a sweep file is carried out."""
    if (work := working()) is not None:
        work.show_entry(entry)


def working() -> Work | None:
    """What is shown; None where nobody looks."""
    return _screens[-1].work if _screens else None


@contextlib.contextmanager
def _repeated(what: Callable[[], None], every_s: float) -> Iterator[None]:
    """Do something again and again beside the block."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(every_s):
            what()

    thread = threading.Thread(target=run, daemon=True, name="tune-calib screen")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
