"""Progress events, which any code may report; they cost nothing without a listener."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class ProgressEvent:
    """The current activity of a process."""

    doing: str  # in a few words, e.g. ``"reading CIFAR-10"``
    at: int = 0  # finished steps, e.g. epochs
    of: int = 0  # all steps; 0 if unknown
    metrics: Mapping[str, float] = field(default_factory=dict)  # e.g. by ``select/accuracy``
    at_once: bool = False  # print it at once to a pipe, which otherwise gets one line a minute


Listener = Callable[[ProgressEvent], None]

_listeners: list[Listener] = []


def report_progress(
    doing: str,
    at: int = 0,
    of: int = 0,
    metrics: Mapping[str, float] = {},
    at_once: bool = False,
) -> None:
    """Send a ``ProgressEvent`` to the last listener."""
    if _listeners:
        _listeners[-1](ProgressEvent(doing, at, of, dict(metrics), at_once))


def count_progress(doing: str, items: Iterable[T], of: int, done: int = 0) -> Iterator[T]:
    """Yield items and report each one that was used; ``done`` of them came from elsewhere."""
    report_progress(doing, done, of)
    for at, item in enumerate(items, start=done + 1):
        yield item
        report_progress(doing, at, of)


def add_listener(listener: Listener) -> None:
    """Send the events of this process to a listener from now on."""
    _listeners.append(listener)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the events of this process to a listener while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
