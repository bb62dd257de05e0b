"""What is known of a driver at work, at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A Ray trial that runs.

    Attributes:
        told: its name, for people.
        doing: what it does.
        at: epochs that it has trained, or whatever it counts.
        of: as many as it will; 0 where nobody knows.
        metrics: last values by their names in reports.
        seconds: since it began.
    """

    told: str
    doing: str
    at: int
    of: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Progress:
    """What a driver does, as it is shown and as ``progress.json`` holds it.

    Attributes:
        host: the driver's machine.
        process: its number there.
        seconds: since the driver began.
        written: seconds since 1970, by the clock of that machine.
        every_s: after how many seconds it is written again.
        title: of the command.
        entry: of a sweep file: which one, e.g. ``digits-mac_cal, 2 of 7``.
        doing: what the driver itself does.
        at: how far that is.
        of: how far it goes; 0 where nobody knows.
        phase: what the Ray trials do; empty while none are carried out.
        unit: what the bar counts.
        total: of them, at most.
        ended: by status.
        kinds: Ray trials of each kind, those that ended and all.
        left_s: seconds that are left, as far as known.
        is_least: some kind of Ray trial was not timed yet.
        notes: lines of a search: best so far, guard, baseline.
        running: Ray trials.
    """

    host: str
    process: int
    seconds: float
    written: float
    every_s: float
    title: str
    entry: str
    doing: str
    at: int
    of: int
    phase: str
    unit: str
    total: int
    ended: dict[str, int]
    kinds: dict[str, list[int]]
    left_s: float | None
    is_least: bool
    notes: list[str]
    running: list[Running]
