"""Watch the driver of a folder from another terminal or another node."""

import os
import socket
import time

from pydantic import TypeAdapter, ValidationError

from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath, refuse_special
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.progress.screen import open_display
from tune_calib.tuning.progress.tracker import Progress
from tune_calib.tuning.progress.view import format_line

# Seconds beyond ``every_s`` after which a silent driver counts as dead.
SILENT_S = 120.0  # on another machine, whose clock may differ
_BUSY_S = 900.0  # its process runs on this machine: starved, or another process has its number
_GONE_S = 10.0  # there is no such process on this machine
READ_EVERY_S = 1.0


def read_progress(folder: AnyPath) -> Progress | None:
    """Return the last record of a folder's driver, or None if there is no driver."""
    path = folder / PROGRESS
    if not path.exists():
        return None
    refuse_special(path)
    try:
        return TypeAdapter(Progress).validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:  # it ended meanwhile
        return None
    except ValidationError:
        raise DamagedFileError(f"{path} is damaged; remove it if no driver is at work") from None


def is_dead(record: Progress, now: float) -> bool:
    """Return whether a driver ended without removing its file, at a time in seconds since 1970."""
    silent_s = now - record.written - record.every_s
    if record.host != socket.gethostname():
        return silent_s > SILENT_S
    try:
        os.kill(record.process, 0)
    except ProcessLookupError:
        # Containers may share a host name but not their processes, so it may be alive.
        return silent_s > _GONE_S
    except PermissionError:  # it belongs to another user
        pass
    return silent_s > _BUSY_S


def describe_driver(folder: AnyPath) -> str:
    """Return a line on what the driver of a folder does, or that it died; empty without one."""
    record = read_progress(folder)
    if record is None:
        return ""
    where = f"process {record.process} on {record.host}"
    if is_dead(record, time.time()):
        ago = round(time.time() - record.written)
        return f"its driver ({where}) died: it last wrote {ago} s ago"
    return f"at work ({where}): {format_line(record)}"


def watch(folder: AnyPath) -> bool:
    """Show the driver of a folder until it ends; return False if it died."""
    display, is_first = open_display(), True
    try:
        while (record := read_progress(folder)) is not None:
            if is_dead(record, time.time()):
                return False
            display.draw(record, at_once=is_first)
            is_first = False
            time.sleep(READ_EVERY_S)
    finally:
        display.close()
    return True
