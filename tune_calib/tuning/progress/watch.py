"""Watching the driver of a folder from elsewhere: another terminal, or another node."""

import os
import socket
import time

from tune_calib.paths import AnyPath
from tune_calib.tuning.progress.progress import Progress, read_progress
from tune_calib.tuning.progress.shown import shown_here

SILENT_S = 120.0
"""Seconds without a word from a driver elsewhere, beyond those that it takes between two, after
which it is taken for dead: clocks of two machines may differ by some."""

_STILL_S = 900.0
"""As ``SILENT_S``, of a driver of this machine whose process is there: it may be starved by others,
or another process may have its number by now."""

_GONE_S = 10.0
"""As ``SILENT_S``, of a driver of this machine whose process is not there."""

LOOK_EVERY_S = 1.0


def is_dead(record: Progress, now: float) -> bool:
    """Whether a driver has ended without a word.

    Args:
        record: its last word.
        now: seconds since 1970.
    """
    silent_s = now - record.written - record.every_s
    if record.host != socket.gethostname():
        return silent_s > SILENT_S
    # Containers may share a name, not their processes: one that still speaks is alive.
    return silent_s > (_STILL_S if _is_running(record.process) else _GONE_S)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def told_of_driver(folder: AnyPath) -> str:
    """What the driver of a folder does, or that it died, in a line; nothing if none is at work."""
    record = read_progress(folder)
    if record is None:
        return ""
    from tune_calib.tuning.progress.view import line

    where = f"process {record.process} on {record.host}"
    if is_dead(record, time.time()):
        ago = round(time.time() - record.written)
        return f"its driver ({where}) died: it last wrote {ago} s ago"
    return f"at work ({where}): {line(record)}"


def watch(folder: AnyPath) -> bool:
    """Show what the driver of a folder does until it ends.

    Args:
        folder: of its results.

    Returns:
        Whether the driver ended by itself; not if it died.
    """
    shown, is_first = shown_here(), True
    try:
        while (record := read_progress(folder)) is not None:
            if is_dead(record, time.time()):
                return False
            shown.draw(record, at_once=is_first)
            is_first = False
            time.sleep(LOOK_EVERY_S)
    finally:
        shown.close()
    return True
