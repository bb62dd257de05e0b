"""What is known of a driver at work, at one moment; ``progress.json`` holds it for watchers.

The file is replaced whole, and removed when the driver ends: one that stays tells of a driver that
died.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tune_calib.errors import DamagedFileError
from tune_calib.progress import Activity
from tune_calib.spec.names import PROGRESS

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath


@dataclass
class Running:
    """A Ray trial that runs.

    Attributes:
        told: its name, for people.
        kind: that it is of.
        weight: how much of its kind it does.
        began: seconds since 1970.
        activity: what it does.
    """

    told: str
    kind: str
    weight: int
    began: float
    activity: Activity = field(default_factory=lambda: Activity("starting a worker"))

    @property
    def fraction(self) -> float:
        """How much of it is done, as far as it says."""
        return self.activity.at / self.activity.of if self.activity.of else 0.0


@dataclass
class Kind:
    """Ray trials that cost alike, in units of what takes its time: a network, a head.

    Attributes:
        total: how many there are, at most.
        ended: of them.
        seconds: that those took, one after the other.
    """

    total: int
    ended: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """What a driver does, as it is shown and as ``progress.json`` holds it.

    Attributes:
        host: the driver's machine.
        process: its number there.
        title: of the command.
        began: seconds since 1970, by the clock of that machine.
        written: as ``began``.
        every_s: after how many seconds it is written again.
        entry: of a sweep file: which one, e.g. ``digits-mac_cal, 2 of 7``.
        activity: what the driver itself does.
        phase: what the Ray trials do; empty while none are carried out.
        unit: what the bar counts.
        total: of them, at most.
        ended: by status.
        kinds: of Ray trials.
        left_s: seconds that are left, as far as known.
        is_least: some kind of Ray trial was not timed yet.
        notes: lines of a search: best so far, guard, baseline.
        running: Ray trials by name.
    """

    host: str
    process: int
    title: str
    began: float
    written: float = 0.0
    every_s: float = 0.0
    entry: str = ""
    activity: Activity = field(default_factory=lambda: Activity("starting"))
    phase: str = ""
    unit: str = ""
    total: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    left_s: float | None = None
    is_least: bool = False
    notes: list[str] = field(default_factory=list)
    running: dict[str, Running] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Since the driver began."""
        return self.written - self.began

    def write(self, folder: "AnyPath") -> None:
        """Replace the file of a folder.

        Raises:
            UserError: the folder cannot be written.
        """
        from tune_calib.results.tables import atomic_write

        atomic_write(folder / PROGRESS, f"{json.dumps(asdict(self))}\n".encode())


def read_progress(folder: "AnyPath") -> Progress | None:
    """Return what the driver of a folder last wrote; None if none is at work.

    Raises:
        DamagedFileError: it is not such a file.
    """
    from pydantic import TypeAdapter, ValidationError

    from tune_calib.paths import refuse_special

    path = folder / PROGRESS
    if not path.exists():
        return None
    refuse_special(path)
    try:
        return TypeAdapter(Progress).validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:  # it ended meanwhile
        return None
    except ValidationError:
        raise DamagedFileError(f"{path} is not such a file as this tune-calib writes") from None
