"""What a driver has in hand: Ray trials that run and that ended, and how long the rest may take."""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tune_calib.progress import Activity
from tune_calib.tuning.progress.progress import Progress, Running

TRIALS = "trials"
"""The unit of a phase whose bar counts result rows."""

_STARTING = Activity("starting a worker")


@dataclass
class _Row:
    """A Ray trial that runs."""

    told: str
    kind: str
    weight: int
    since: float
    activity: Activity = _STARTING

    @property
    def fraction(self) -> float:
        return self.activity.at / self.activity.of if self.activity.of else 0.0


@dataclass
class _Kind:
    """Ray trials that cost alike, in units of what takes its time: a network, a head.

    Attributes:
        total: how many there are, at most.
        ended: of them.
        seconds: that those took, one after the other.
    """

    total: int
    ended: int = 0
    seconds: float = 0.0


class Work:
    """What is done by one driver; several threads read and write it.

    Args:
        title: of the command.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.entry = ""
        self.activity = Activity("starting")
        self._started = time.monotonic()
        self._lock = threading.RLock()
        self.begin("", 0, "", {})

    def begin(self, phase: str, total: int, unit: str, kinds: Mapping[str, int]) -> None:
        """Take up a phase; what stood in the one before is forgotten.

        Args:
            phase: its title; empty between phases.
            total: what the bar goes to.
            unit: what it counts; ``TRIALS`` by what Ray trials report.
            kinds: how much there is to do of each kind, as ``_Kind.total``.
        """
        with self._lock:
            self.phase, self.total, self.unit = phase, total, unit
            self.counts: Counter[str] = Counter()
            self.notes: list[str] = []
            self._rows: dict[str, _Row] = {}
            self._kinds = {name: _Kind(count) for name, count in kinds.items()}

    def start(self, name: str, told: str, kind: str, weight: int) -> None:
        """A Ray trial begins.

        Args:
            name: of it.
            told: its name, for people.
            kind: that it is of.
            weight: how much of its kind it does.
        """
        with self._lock:
            self._rows[name] = _Row(told, kind, weight, time.monotonic())

    def end(self, name: str, statuses: Mapping[str, int]) -> None:
        """A Ray trial has ended.

        Args:
            name: of it.
            statuses: how its trials ended; counted where the bar counts trials.
        """
        with self._lock:
            row = self._rows.pop(name, None)
            if row is not None and (kind := self._kinds.get(row.kind)) is not None:
                kind.ended += row.weight
                kind.seconds += time.monotonic() - row.since
            if self.unit == TRIALS:
                self.counts.update(statuses)

    def count(self, status: str) -> None:
        """One more of what the bar counts has ended."""
        with self._lock:
            self.counts[status] += 1

    def hear(self, told: Mapping[str, Activity]) -> None:
        """What Ray trials do, by name."""
        with self._lock:
            for name, activity in told.items():
                if name in self._rows:
                    self._rows[name].activity = activity

    @property
    def running(self) -> Sequence[str]:
        """Names of the Ray trials that run."""
        with self._lock:
            return list(self._rows)

    def _left(self) -> tuple[float | None, bool]:
        """Seconds that are left; whether some kind was not timed yet and is not in them."""
        left, is_least = 0.0, False
        now = time.monotonic()
        for name, kind in self._kinds.items():
            rows = [row for row in self._rows.values() if row.kind == name]
            done = kind.ended + sum(row.weight * row.fraction for row in rows)
            # Of one that only begins, the start of its worker is all that was timed.
            timed = [row for row in rows if row.fraction]
            seconds = kind.seconds + sum(now - row.since for row in timed)
            if kind.total <= done:
                continue
            if done:
                left += (kind.total - done) * seconds / done
            else:
                is_least = True
        side_by_side = max(1, len(self._rows))
        return (left / side_by_side or None), is_least

    def record(self, every_s: float = 0.0) -> Progress:
        """What is to be shown now.

        Args:
            every_s: after how many seconds the next record follows.
        """
        with self._lock:
            now = time.monotonic()
            left_s, is_least = self._left()
            return Progress(
                host=socket.gethostname(),
                process=os.getpid(),
                seconds=now - self._started,
                written=time.time(),
                every_s=every_s,
                title=self.title,
                entry=self.entry,
                doing=self.activity.doing,
                at=self.activity.at,
                of=self.activity.of,
                phase=self.phase,
                unit=self.unit,
                total=self.total,
                ended=dict(self.counts),
                kinds={name: [kind.ended, kind.total] for name, kind in self._kinds.items()},
                left_s=left_s,
                is_least=is_least,
                notes=list(self.notes),
                running=[_running(row, now) for row in self._rows.values()],
            )


def _running(row: _Row, now: float) -> Running:
    doing = row.activity
    return Running(
        told=row.told,
        doing=doing.doing,
        at=doing.at,
        of=doing.of,
        metrics=dict(doing.metrics),
        seconds=now - row.since,
    )
