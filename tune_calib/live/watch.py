"""Watching the driver of a folder from elsewhere: another terminal, or another node."""

import os
import socket
import time

from tune_calib.live.shown import shown_here
from tune_calib.manifests import PROGRESS, ProgressRecord
from tune_calib.places import Place

SILENT_S = 60.0
"""Seconds without a word from a driver, beyond those that it takes between two, after which it is
taken for dead: clocks of two machines may differ by some."""

_GONE_S = 10.0
"""As ``SILENT_S``, of a driver of this machine whose process is not there."""

LOOK_EVERY_S = 1.0


def progress_of(folder: Place) -> ProgressRecord | None:
    """What the driver of a folder last said; None if none is at work."""
    try:
        return ProgressRecord.read(folder) if (folder / PROGRESS).exists() else None
    except FileNotFoundError:  # it ended meanwhile
        return None


def is_dead(record: ProgressRecord, now: float) -> bool:
    """Whether a driver has ended without a word.

    Args:
        record: its last word.
        now: seconds since 1970.
    """
    silent_s = now - record.written - record.every_s
    if silent_s > SILENT_S:
        return True
    # Containers may share a name, not their processes: one that still speaks is alive.
    is_here = record.host == socket.gethostname()
    return is_here and silent_s > _GONE_S and not _is_running(record.process)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def told_of_driver(folder: Place) -> str:
    """What the driver of a folder does, or that it died, in a line; nothing if none is at work."""
    record = progress_of(folder)
    if record is None:
        return ""
    from tune_calib.live.view import line

    where = f"process {record.process} on {record.host}"
    if is_dead(record, time.time()):
        ago = round(time.time() - record.written)
        return f"its driver ({where}) died: it last wrote {ago} s ago"
    return f"at work ({where}): {line(record)}"


def watch(folder: Place) -> bool:
    """Show what the driver of a folder does until it ends.

    Args:
        folder: of its results.

    Returns:
        Whether the driver ended by itself; not if it died.
    """
    shown, is_first = shown_here(), True
    try:
        while (record := progress_of(folder)) is not None:
            if is_dead(record, time.time()):
                return False
            shown.draw(record, at_once=is_first)
            is_first = False
            time.sleep(LOOK_EVERY_S)
    finally:
        shown.close()
    return True
