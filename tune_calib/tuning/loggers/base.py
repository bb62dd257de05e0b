"""What a program that follows experiments is told: a run a trial, and the figures of a report."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_calib.paths import AnyPath
from tune_calib.spec.names import SLOTS

Values = Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """A trial as such a program knows it.

    Attributes:
        key: spec hash, or the network id of a network that has no trial of its own.
        name: readable, e.g. ``vanilla, seed 3``.
        settings: by ``slot.key``; numbers, texts, truth values.
    """

    key: str
    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """The trials of one folder.

    Attributes:
        out: the folder.
        name: its last two parts, e.g. ``runs/mac_cal-digits``.
        sweep: identity of the question, which is part of the identity of a run.
    """

    out: AnyPath
    name: str
    sweep: str

    @classmethod
    def of(cls, out: AnyPath, sweep: str) -> "Group":
        """The group of a folder."""
        whole = out.resolve()
        return cls(out, f"{whole.parent.name}/{whole.name}", sweep)


class Logger(ABC):
    """One such program, for one group. It is used by one thread at a time.

    Raises:
        UserError: when it is made, where it cannot be written to.
    """

    @abstractmethod
    def __init__(self, group: Group) -> None:
        """Reach it."""

    @abstractmethod
    def begin(self, run: Run) -> None:
        """Begin a run, or go on with one that was begun earlier."""

    @abstractmethod
    def epoch(self, key: str, epoch: int, values: Values) -> None:
        """Add a point to the curves of a run that is begun; epochs are 1-based."""

    @abstractmethod
    def end(self, key: str, epoch: int, status: str, metrics: Values) -> None:
        """End a run.

        Args:
            key: of the run.
            epoch: whose weights were evaluated.
            status: of ``names.STATUSES``.
            metrics: final ones by column, e.g. ``test/ece``; none unless it is done.
        """

    @abstractmethod
    def figures(self, paths: Sequence[Path]) -> None:
        """Show the figures of a report, PNG files."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing unsent; runs that have not ended may go on later."""


def settings_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial by ``slot.key``; lists and the like as JSON.

    Args:
        spec: its slots, or some of them, as plain JSON values.
    """
    return {
        f"{slot}.{key}": value if isinstance(value, int | float | str) else json.dumps(value)
        for slot in SLOTS
        for key, value in (spec.get(slot) or {}).items()
        if value is not None
    }


def name_of(label: str, network_seed: int, head_seed: int | None) -> str:
    """A readable name of a trial: its rung, and under which seed."""
    both = head_seed is not None and head_seed != network_seed
    return f"{label}, seed {network_seed}/{head_seed}" if both else f"{label}, seed {network_seed}"
