"""SIGINT and SIGTERM end a search within seconds; what is on disk is where it goes on."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal(BaseException):
    """The user or the cluster wants the program to stop.

    No ``Exception``, so that nothing between takes it for a failure of a trial.

    Attributes:
        number: of the signal; the exit code is 128 more.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """Raise ``StopSignal`` at the first signal; a second one kills at once."""
    before = {number: signal.signal(number, _stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> Any:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise StopSignal(number)
