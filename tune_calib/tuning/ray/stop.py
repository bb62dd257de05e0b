"""SIGINT and SIGTERM end a search within seconds; what is on disk is where it goes on."""

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """The signal that stopped a program.

    Attributes:
        number: of the signal; the exit code is 128 more.
    """

    number: int = signal.SIGINT

    @property
    def name(self) -> str:
        """Of the signal, e.g. ``SIGTERM``."""
        return signal.Signals(self.number).name


@contextlib.contextmanager
def stop_signals(tell: Callable[[str], None]) -> Iterator[Stop]:
    """Raise KeyboardInterrupt at the first signal; a second one kills at once.

    Args:
        tell: is given the name of the first signal at once, since the second one leaves no time.

    Yields:
        Which signal it was. The exception cannot carry it: Ray, in whose waiting the program
        spends its time, lets no other exception of a signal through and raises its own.
    """
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.number = number
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError, OSError):  # it came within another print
            tell(stop.name)
        raise KeyboardInterrupt

    def raise_again(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    def notice(ignored: "sys.UnraisableHookArgs") -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            hook(ignored)
            return
        # It came within a finalizer or a hook of a fork, where Python ignores every exception.
        signal.signal(stop.number, raise_again)
        threading.Timer(0.1, _thread.interrupt_main, (stop.number,)).start()

    hook = sys.unraisablehook
    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    sys.unraisablehook = notice
    try:
        yield stop
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
