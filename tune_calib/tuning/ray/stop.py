"""SIGINT and SIGTERM end a search within seconds; what is on disk is where it goes on."""

import contextlib
import signal
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

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
