"""Pieces of work side by side in copies of this process, where copying it is safe and pays."""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

PATIENCE_S = 120.0
"""Without an answer for so long, what is left with the copies is done here."""

_MOST = 255  # the number of a piece travels as one byte


def side_by_side(
    count: int, work: Callable[[int], int], tell: Callable[[int], None]
) -> dict[int, int]:
    """Do some pieces of work in child processes and in this one.

    A child leaves files behind and the answer alone; what a child fails at, this process does, so
    that errors arise where they are told.

    Args:
        count: how many there are.
        work: does the piece of a number, and answers with a number below 256.
        tell: is told how many are done.

    Returns:
        The answers by number.
    """
    found: dict[int, int] = {}

    def here(number: int) -> None:
        found[number] = work(number)
        tell(len(found))

    tell(0)
    workers = min(count, _cores())
    if workers >= 2 and count <= _MOST and _is_copied_safely():
        _shared(count, workers, work, here, found)
    for number in range(count):
        if number not in found:
            here(number)
    return found


def _shared(
    count: int,
    workers: int,
    work: Callable[[int], int],
    here: Callable[[int], None],
    found: dict[int, int],
) -> None:
    """Fill in answers, of children and of this process, as long as any come."""
    (queue, filled), (answers, answered) = os.pipe(), os.pipe()
    os.write(filled, bytes(range(count)))
    os.close(filled)
    # Else what stands in the buffers would be written by every copy.
    sys.stdout.flush()
    sys.stderr.flush()
    children = [_child(queue, answered, work) for _ in range(workers - 1)]
    os.close(answered)

    def take(patience: float) -> bool:
        """Take an answer of a child."""
        is_there = select.select([answers], [], [], patience)[0]
        told = os.read(answers, 2) if is_there else b""
        if told:
            found[told[0]] = told[1]
        return bool(told)

    try:
        while taken := os.read(queue, 1):
            here(taken[0])
            while take(0):
                pass
        while len(found) < count and take(PATIENCE_S):
            pass
    finally:
        os.close(queue)
        os.close(answers)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _child(queue: int, answers: int, work: Callable[[int], int]) -> int:
    """Start a copy of this process that takes pieces until none is left.

    Returns:
        Its process id.
    """
    if child := os.fork():
        return child
    try:
        # What another thread was writing to has its lock, and nobody here to free it.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        while taken := os.read(queue, 1):
            with contextlib.suppress(Exception):
                # Two bytes are written at once, whoever else writes.
                os.write(answers, bytes([taken[0], work(taken[0])]))
    finally:
        os._exit(0)  # past what belongs to the process that was copied: its output, its locks


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_copied_safely() -> bool:
    """Whether no thread could leave a lock behind that a copy would wait for, for ever."""
    main = threading.main_thread()
    # The program's own thread shows how it goes, which no copy does.
    others = {t for t in threading.enumerate() if not t.name.startswith("tune-calib")} - {main}
    return sys.platform == "linux" and not others and not {"torch", "ray"} & sys.modules.keys()
