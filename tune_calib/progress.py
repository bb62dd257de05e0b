"""What is being done now: said by whoever does it, heard by whoever shows it.

Anything may say it, at no cost where nobody listens: ``activity("reading CIFAR-10")``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Activity:
    """What is being done.

    Attributes:
        doing: in a few words, e.g. ``"reading CIFAR-10"``.
        at: how far it is, e.g. epochs that are trained.
        of: how far it goes; 0 where nobody knows.
        metrics: last values by their names in reports, e.g. ``select/accuracy``.
        at_once: whether a pipe, which is told once a minute, is told at once.
    """

    doing: str
    at: int = 0
    of: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    at_once: bool = False


Listener = Callable[[Activity], None]

_listeners: list[Listener] = []


def activity(
    doing: str,
    at: int = 0,
    of: int = 0,
    metrics: Mapping[str, float] = MappingProxyType({}),
    at_once: bool = False,
) -> None:
    """Say what is being done now, until the next word.

    Args:
        doing: in a few words, in the form "reading CIFAR-10".
        at: how far it is, e.g. figures that are drawn.
        of: how far it goes; 0 where nobody knows.
        metrics: last values by their names in reports; they are read later, and must not change.
        at_once: whether a pipe is told at once; for the few things that take long.
    """
    if _listeners:
        _listeners[-1](Activity(doing, at, of, metrics, at_once))


def listen(listener: Listener) -> None:
    """Hear what this process does from now on."""
    _listeners.append(listener)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hear what this process does while the block runs; who listened before does so after it."""
    listen(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
