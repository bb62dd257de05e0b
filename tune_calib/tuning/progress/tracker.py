"""The progress of a driver: its record in ``progress.json``, its tracker, and how it is shown."""

import copy
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tune_calib.console import printable
from tune_calib.files.documents import seal
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.progress import ProgressEvent
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.spec.names import PROGRESS

TRIALS = "trials"  # the unit of a phase whose bar counts result rows
EVALUATIONS = "evaluations"  # likewise: each trial has one on every shift set
_BAR_WIDTH = 30
_STEP_WIDTH = 26
_METRICS_FROM = 80  # minimum columns of a terminal to show metrics beside full names
_IN_LINE = 4  # running Ray trials that a line names
_METRICS = ("accuracy", "ece")  # of a Ray trial on ``select``
_SPINNER = Spinner("dots")
_Event = Annotated[ProgressEvent, Field(alias="activity")]


@dataclass
class RunningJob:
    title: Annotated[str, Field(alias="told")]
    kind: str
    weight: int  # within its kind
    began: float
    event: _Event = field(default_factory=partial(ProgressEvent, "starting a worker"))

    @property
    def fraction(self) -> float:
        return self.event.completed / self.event.total if self.event.total else 0.0


@dataclass
class Kind:
    """Ray trials of similar cost: their total weight, the weight that ended, and its duration."""

    total: int
    ended: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """The record of a driver at one moment, which ``progress.json`` contains."""

    host: str
    process: int
    title: str
    began: float  # seconds since 1970, by the clock of the driver's host
    written: float = 0.0  # likewise
    every_s: float = 0.0  # seconds until it is written again
    entry: str = ""  # of an experiment file, e.g. ``digits-mac_cal, 2 of 7``
    # The latest event of the driver, not of its Ray trials.
    event: _Event = field(default_factory=partial(ProgressEvent, "starting"))
    phase: str = ""  # its title; empty between phases
    unit: str = ""  # of ``total`` and ``ended``
    total: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # units that ended, by status
    kinds: dict[str, Kind] = field(default_factory=dict)  # of Ray trials, by name
    left_s: float | None = None  # remaining seconds; None if unknown
    is_least: bool = False  # ``left_s`` excludes kinds of Ray trials that were not timed yet
    notes: list[str] = field(default_factory=list)  # of a search: best so far, guard, baseline
    running: dict[str, RunningJob] = field(default_factory=dict)  # Ray trials by name

    def write(self, folder: AnyPath) -> None:
        """Replace the file of a folder; raise UserError if it cannot be written."""
        content = PROGRESS_RECORD.dump_python(self, by_alias=True)
        atomic_write(folder / PROGRESS, seal(content, indent=None))


PROGRESS_RECORD = TypeAdapter(Progress)


class Tracker:
    """Updates the record of this process; several threads use it."""

    def __init__(self, title: str) -> None:
        self._lock = threading.RLock()
        self._record = Progress(socket.gethostname(), os.getpid(), title, began=time.time())

    def set(self, **fields: Any) -> None:
        with self._lock:
            self._record = replace(self._record, **fields)

    def begin(self, phase: str, total: int, unit: str, kinds: Mapping[str, int]) -> None:
        """Begin a phase with the total of each kind, or the time between two phases."""
        timed = {name: Kind(count) for name, count in kinds.items()}
        self.set(phase=phase, total=total, unit=unit, kinds=timed, ended={}, notes=[], running={})
        self.set(event=ProgressEvent(phase or "reading the results"))  # the last one is over

    def start(self, name: str, title: str, kind: str, weight: int) -> None:
        with self._lock:
            self._record.running[name] = RunningJob(title, kind, weight, began=time.time())

    def end(self, name: str, statuses: Mapping[str, int]) -> None:
        """Remove a Ray trial; count the statuses of its trials if the bar counts trials."""
        with self._lock:
            job = self._record.running.pop(name, None)
            if job is not None and (kind := self._record.kinds.get(job.kind)) is not None:
                kind.ended += job.weight
                kind.seconds += time.time() - job.began
            if self._record.unit in (TRIALS, EVALUATIONS):
                for status, count in statuses.items():
                    self._record.ended[status] = self._record.ended.get(status, 0) + count

    def update(self, events: Mapping[str, ProgressEvent]) -> None:
        """Set the latest events of Ray trials by name, except of those that have ended."""
        with self._lock:
            for name in events.keys() & self._record.running.keys():
                self._record.running[name].event = events[name]

    @property
    def running(self) -> Sequence[str]:
        with self._lock:
            return list(self._record.running)

    def record(self, every_s: float = 0.0) -> Progress:
        """Return a copy of the record; the next one follows after ``every_s`` seconds."""
        with self._lock:
            now, record = time.time(), copy.deepcopy(self._record)
        left, is_least = 0.0, False
        for name, kind in record.kinds.items():
            done, seconds = float(kind.ended), kind.seconds
            for job in record.running.values():
                # Before its first step, a Ray trial has only started a worker.
                if job.kind == name and job.fraction:
                    done += job.weight * job.fraction
                    seconds += now - job.began
            if kind.total <= done:
                continue
            if done:
                left += (kind.total - done) * seconds / done
            else:
                is_least = True
        left_s = left / max(1, len(record.running)) or None
        return replace(record, written=now, every_s=every_s, left_s=left_s, is_least=is_least)


def draw_view(record: Progress, console: Console) -> Group:
    title = _text(record.title, "bold")
    if record.entry:
        title.append(f" · {printable(record.entry)}", "not bold")
    parts: list[RenderableType] = [title]
    if record.total:
        ended = min(record.total, sum(record.ended.values()))
        counts = ", ".join(filter(None, (_counts(record), _left(record))))
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(record.total, ended, width=_BAR_WIDTH), _text(counts))
        parts.append(bar)
    now = Table.grid(padding=(0, 1))
    now.add_row(_SPINNER, _text(_now(record)))
    parts.append(now)
    parts += [_text(f"  {note}") for note in record.notes]
    room = console.height - len(parts) - 1
    parts.append(_rows(record, room, console.width >= _METRICS_FROM))
    return Group(*parts)


def _text(words: str, style: str = "") -> Text:
    return Text(printable(words), style, no_wrap=True, overflow="ellipsis")


def _rows(record: Progress, room: int, has_metrics: bool) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    # A long name loses its end, never the number at its beginning.
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_STEP_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, justify="right")
    running = list(record.running.values())
    fits = len(running) if len(running) <= room else max(0, room - 1)
    for job in running[:fits]:
        metrics = ", ".join(_metrics(job.event)) if has_metrics else ""
        words = (f"  {job.title}", _step(job.event), metrics, clock(record.written - job.began))
        table.add_row(*map(_text, words), style="dim")
    if fits < len(running):
        table.add_row(f"  and {len(running) - fits} more")
    return table


def format_line(record: Progress) -> str:
    parts = [record.entry, _now(record, gap=" ")]
    if record.total:
        parts += [_counts(record), _left(record)]
    parts += record.notes
    for job in list(record.running.values())[:_IN_LINE]:
        words = [job.title, _step(job.event), *_metrics(job.event)]
        parts.append(f"running {', '.join(words)}")
    if len(record.running) > _IN_LINE:
        parts.append(f"and {len(record.running) - _IN_LINE} more")
    return "; ".join(filter(None, parts))


def format_summary(record: Progress, seconds: float) -> str:
    """Summarise a phase that took some seconds in one line."""
    return f"{record.phase}: {_counts(record)} in {clock(seconds)}"


def _counts(record: Progress) -> str:
    states = ", ".join(f"{n} {state}" for state, n in sorted(record.ended.items()) if n)
    text = f"{sum(record.ended.values())} of {record.total} {record.unit} ended"
    return f"{text} ({states})" if states else text


def _left(record: Progress) -> str:
    if record.left_s is None:
        return ""
    minutes = round(record.left_s / 60)
    if record.left_s < 90:
        duration = f"{max(1, round(record.left_s))} s"
    else:
        duration = f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
    prefix = "at least" if record.is_least else "about"
    return f"{prefix} {duration} left"


def _now(record: Progress, gap: str = "  ") -> str:
    """Return the time since the start of the driver, and its current step."""
    step = _step(record.event)
    if record.running:
        counts = [f"{name} {k.ended} of {k.total}" for name, k in record.kinds.items() if k.total]
        if len(counts) == 1:  # the bar shows it
            counts.clear()
        step = f"{record.phase}: {', '.join([*counts, f'{len(record.running)} running'])}"
    return f"{clock(record.written - record.began)}{gap}{step}"


def _step(event: ProgressEvent) -> str:
    if not event.total:
        return event.description
    return f"{event.description} {event.completed:,}/{event.total:,}"


def _metrics(event: ProgressEvent) -> list[str]:
    texts = []
    for name in _METRICS:
        value = event.metrics.get(column("select", name))
        if value is not None:
            texts.append(f"{METRICS[name].title} {format_value(name, value)}")
    return texts


def clock(seconds: float) -> str:
    """Format hours, if there are any, minutes and seconds, e.g. ``3:07``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
