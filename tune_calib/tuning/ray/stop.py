"""End a run within seconds at SIGINT and SIGTERM; it can be continued from disk."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """The signal that stopped a program, whose exit code is 128 plus its number."""

    number: int = signal.SIGINT


@contextlib.contextmanager
def stop_signals(print_stopped: Callable[[str], None]) -> Iterator[Stop]:
    """Print the first signal and raise KeyboardInterrupt; a second signal kills at once.

    The exception does not contain the signal: while Ray waits, it lets no other exception of a
    signal handler through and raises its own.
    """
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.number = number
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError, OSError):  # it interrupted another print
            print_stopped(signal.Signals(number).name)
        raise KeyboardInterrupt

    def raise_again(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    def notice(ignored: "sys.UnraisableHookArgs") -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            hook(ignored)
            return
        # It interrupted a finalizer or a fork hook, where Python ignores all exceptions.
        signal.signal(stop.number, raise_again)
        # A signal of the system, since only that ends a waiting call.
        threading.Timer(0.1, os.kill, (os.getpid(), stop.number)).start()

    hook = sys.unraisablehook
    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    sys.unraisablehook = notice
    try:
        yield stop
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
