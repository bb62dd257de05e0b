"""Progress events, which any code may report; they cost nothing without a listener."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

T = TypeVar("T")

# Keys in ``progress.json`` that differ from the names of the fields.
KEYS = {"description": "doing", "completed": "at", "total": "of", "is_urgent": "at_once"}


@dataclass(frozen=True)
class ProgressEvent:
    """What a process is doing now."""

    __pydantic_config__: ClassVar = {"alias_generator": lambda name: KEYS.get(name, name)}
    description: str  # in a few words, e.g. ``"reading CIFAR-10"``
    completed: int = 0  # steps, e.g. epochs
    total: int = 0  # of steps; 0 if unknown
    metrics: Mapping[str, float] = field(default_factory=dict)  # e.g. by ``select/accuracy``
    is_urgent: bool = False  # print it at once to a pipe, which otherwise gets one line a minute


Listener = Callable[[ProgressEvent], None]

_listeners: list[Listener] = []


def report_progress(
    description: str,
    completed: int = 0,
    total: int = 0,
    metrics: Mapping[str, float] = {},
    is_urgent: bool = False,
) -> None:
    """Send a ``ProgressEvent`` to the last listener."""
    if _listeners:
        event = ProgressEvent(description, completed, total, dict(metrics), is_urgent=is_urgent)
        _listeners[-1](event)


def count_progress(description: str, items: Iterable[T], total: int) -> Iterator[T]:
    """Yield items and report each one that was used."""
    report_progress(description, 0, total)
    for completed, item in enumerate(items, start=1):
        yield item
        report_progress(description, completed, total)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the events of this process to a listener while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
