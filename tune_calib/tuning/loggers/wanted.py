"""Which loggers this process was asked for: said once, by a command or a call."""

import contextlib
from collections.abc import Iterator, Sequence

from tune_calib.paths import Place

_wanted: list[tuple[tuple[str, ...], list[Place]]] = []


@contextlib.contextmanager
def wanted(names: Sequence[str]) -> Iterator[list[Place]]:
    """Ask for loggers while the block runs.

    Yields:
        The folders that they are told of, in their order.
    """
    folders: list[Place] = []
    _wanted.append((tuple(dict.fromkeys(names)), folders))
    try:
        yield folders
    finally:
        _wanted.pop()


def names_for(out: Place) -> tuple[str, ...]:
    """The loggers that are asked for; notes that they are told of a folder."""
    if not _wanted:
        return ()
    names, folders = _wanted[-1]
    if out not in folders:
        folders.append(out)
    return names
