"""The progress of a driver: a record for views and ``progress.json``, and its tracker."""

import copy
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tune_calib.paths import AnyPath, atomic_write
from tune_calib.progress import ProgressEvent
from tune_calib.spec.names import PROGRESS

TRIALS = "trials"
"""The unit of a phase whose bar counts result rows."""


@dataclass
class Running:
    """A running Ray trial."""

    told: str  # its title
    kind: str
    weight: int  # within its kind
    began: float
    activity: ProgressEvent = field(default_factory=lambda: ProgressEvent("starting a worker"))

    @property
    def fraction(self) -> float:
        """Return the fraction of finished steps."""
        return self.activity.at / self.activity.of if self.activity.of else 0.0


@dataclass
class Kind:
    """Ray trials of similar cost: their total weight, the weight that ended, and its duration."""

    total: int
    ended: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """The record of a driver at one moment; its fields are the keys of ``progress.json``."""

    host: str
    process: int
    title: str
    began: float  # seconds since 1970, by the clock of the driver's host
    written: float = 0.0  # likewise
    every_s: float = 0.0  # seconds until it is written again
    entry: str = ""  # of an experiment file, e.g. ``digits-mac_cal, 2 of 7``
    # The latest event of the driver, not of its Ray trials.
    activity: ProgressEvent = field(default_factory=lambda: ProgressEvent("starting"))
    phase: str = ""  # its title; empty between phases
    unit: str = ""  # of ``total`` and ``ended``
    total: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # units that ended, by status
    kinds: dict[str, Kind] = field(default_factory=dict)  # of Ray trials, by name
    left_s: float | None = None  # remaining seconds; None if unknown
    is_least: bool = False  # ``left_s`` excludes kinds of Ray trials that were not timed yet
    notes: list[str] = field(default_factory=list)  # of a search: best so far, guard, baseline
    running: dict[str, Running] = field(default_factory=dict)  # Ray trials by name

    def write(self, folder: AnyPath) -> None:
        """Replace the file of a folder; raise UserError if it cannot be written."""
        atomic_write(folder / PROGRESS, f"{json.dumps(asdict(self))}\n".encode())


class Tracker:
    """Updates the record of this process; several threads use it."""

    def __init__(self, title: str) -> None:
        self._lock = threading.RLock()
        self._record = Progress(socket.gethostname(), os.getpid(), title, time.time())

    def set(self, **fields: Any) -> None:
        """Replace fields of the record."""
        with self._lock:
            self._record = replace(self._record, **fields)

    def begin(self, phase: str, total: int, unit: str, kinds: Mapping[str, int]) -> None:
        """Begin a phase with the total of each kind, or the time between two phases."""
        timed = {name: Kind(count) for name, count in kinds.items()}
        none: dict[str, Any] = {"ended": {}, "notes": [], "running": {}}
        self.set(phase=phase, total=total, unit=unit, kinds=timed, **none)

    def start(self, name: str, title: str, kind: str, weight: int) -> None:
        """Add a Ray trial."""
        with self._lock:
            self._record.running[name] = Running(title, kind, weight, time.time())

    def end(self, name: str, statuses: Mapping[str, int]) -> None:
        """Remove a Ray trial; count the statuses of its trials if the bar counts trials."""
        with self._lock:
            row = self._record.running.pop(name, None)
            if row is not None and (kind := self._record.kinds.get(row.kind)) is not None:
                kind.ended += row.weight
                kind.seconds += time.time() - row.began
            if self._record.unit == TRIALS:
                for status, count in statuses.items():
                    self._record.ended[status] = self._record.ended.get(status, 0) + count

    def update(self, events: Mapping[str, ProgressEvent]) -> None:
        """Set the latest events of Ray trials by name, except of those that have ended."""
        with self._lock:
            for name in events.keys() & self._record.running.keys():
                self._record.running[name].activity = events[name]

    @property
    def running(self) -> Sequence[str]:
        """The names of the running Ray trials."""
        with self._lock:
            return list(self._record.running)

    def record(self, every_s: float = 0.0) -> Progress:
        """Return a copy of the record; the next one follows after ``every_s`` seconds."""
        with self._lock:
            now, record = time.time(), copy.deepcopy(self._record)
        left_s, is_least = _estimate_left(record, now)
        return replace(record, written=now, every_s=every_s, left_s=left_s, is_least=is_least)


def _estimate_left(record: Progress, now: float) -> tuple[float | None, bool]:
    """Return the remaining seconds, and whether they exclude a kind without timings."""
    left, is_least = 0.0, False
    for name, kind in record.kinds.items():
        rows = [row for row in record.running.values() if row.kind == name]
        done = kind.ended + sum(row.weight * row.fraction for row in rows)
        # Before its first step, a Ray trial has only started a worker.
        seconds = kind.seconds + sum(now - row.began for row in rows if row.fraction)
        if kind.total <= done:
            continue
        if done:
            left += (kind.total - done) * seconds / done
        else:
            is_least = True
    return (left / max(1, len(record.running)) or None), is_least
