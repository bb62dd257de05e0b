"""What a driver has in hand: Ray trials that run and that ended, and how long the rest may take."""

import copy
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tune_calib.progress import Activity
from tune_calib.tuning.progress.progress import Kind, Progress, Running

TRIALS = "trials"
"""The unit of a phase whose bar counts result rows."""


class Work:
    """What is done by one driver; several threads read and write it.

    Args:
        title: of the command.
    """

    def __init__(self, title: str) -> None:
        self._lock = threading.RLock()
        self._now = Progress(socket.gethostname(), os.getpid(), title, time.time())

    def show(self, activity: Activity) -> None:
        """Show what the driver itself does."""
        with self._lock:
            self._now.activity = _plain(activity)

    def show_entry(self, entry: str) -> None:
        """Show which entry of a sweep file is carried out."""
        with self._lock:
            self._now.entry = entry

    def show_search(self, ended: Mapping[str, int], notes: Sequence[str]) -> None:
        """Show how suggestions ended, and lines on the search."""
        with self._lock:
            self._now.ended, self._now.notes = dict(ended), list(notes)

    def begin(self, phase: str, total: int, unit: str, kinds: Mapping[str, int]) -> None:
        """Take up a phase; what stood in the one before is forgotten.

        Args:
            phase: its title; empty between phases.
            total: what the bar goes to.
            unit: what it counts; ``TRIALS`` by what Ray trials report.
            kinds: how much there is to do of each kind, as ``Kind.total``.
        """
        with self._lock:
            self._now = replace(
                self._now, phase=phase, total=total, unit=unit, ended={}, notes=[], running={},
                kinds={name: Kind(count) for name, count in kinds.items()},
            )  # fmt: skip

    def start(self, name: str, told: str, kind: str, weight: int) -> None:
        """Add a Ray trial that begins, under its name; the others are fields of ``Running``."""
        with self._lock:
            self._now.running[name] = Running(told, kind, weight, time.time())

    def end(self, name: str, statuses: Mapping[str, int]) -> None:
        """Take out a Ray trial that has ended.

        Args:
            name: of it.
            statuses: how its trials ended; counted where the bar counts trials.
        """
        with self._lock:
            row = self._now.running.pop(name, None)
            if row is not None and (kind := self._now.kinds.get(row.kind)) is not None:
                kind.ended += row.weight
                kind.seconds += time.time() - row.began
            if self._now.unit == TRIALS:
                for status, count in statuses.items():
                    self._now.ended[status] = self._now.ended.get(status, 0) + count

    def hear(self, told: Mapping[str, Activity]) -> None:
        """Take up what Ray trials do, by name."""
        with self._lock:
            for name, activity in told.items():
                if name in self._now.running:
                    self._now.running[name].activity = _plain(activity)

    @property
    def running(self) -> Sequence[str]:
        """Names of the Ray trials that run."""
        with self._lock:
            return list(self._now.running)

    def record(self, every_s: float = 0.0) -> Progress:
        """Return what is to be shown now.

        Args:
            every_s: after how many seconds the next record follows.
        """
        with self._lock:
            now = time.time()
            left_s, is_least = self._left(now)
            self._now = replace(
                self._now, written=now, every_s=every_s, left_s=left_s, is_least=is_least
            )
            return copy.deepcopy(self._now)

    def _left(self, now: float) -> tuple[float | None, bool]:
        """Seconds that are left; whether some kind was not timed yet and is not in them."""
        left, is_least = 0.0, False
        for name, kind in self._now.kinds.items():
            rows = [row for row in self._now.running.values() if row.kind == name]
            done = kind.ended + sum(row.weight * row.fraction for row in rows)
            # Of one that only begins, the start of its worker is all that was timed.
            seconds = kind.seconds + sum(now - row.began for row in rows if row.fraction)
            if kind.total <= done:
                continue
            if done:
                left += (kind.total - done) * seconds / done
            else:
                is_least = True
        return (left / max(1, len(self._now.running)) or None), is_least


def _plain(activity: Activity) -> Activity:
    return replace(activity, metrics=dict(activity.metrics))
