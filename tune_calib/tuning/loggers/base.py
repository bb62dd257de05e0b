"""The interface of loggers, programs that record experiments, and the loggers by name."""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.spec.names import SLOTS
from tune_calib.text import nearest

Values = Mapping[str, float]

LOGGERS = {"tensorboard": "TensorBoard", "wandb": "WeightsAndBiases", "mlflow": "MLflow"}
"""The class of each logger; its name is also that of its module and of its extra."""


@dataclass(frozen=True)
class Run:
    """A trial as loggers know it."""

    key: str  # spec hash, or the network id of a network that has no trial of its own
    name: str  # for people, e.g. ``vanilla, seed 3``
    settings: Mapping[str, Any]  # by ``slot.key``; numbers, texts, truth values


@dataclass(frozen=True)
class Group:
    """The trials of one folder; the identity of its request is part of that of each run."""

    out: AnyPath
    sweep: str

    @property
    def name(self) -> str:
        """Return the last two parts of the folder, e.g. ``runs/mac_cal-digits``."""
        whole = self.out.resolve()
        return f"{whole.parent.name}/{whole.name}"


class Logger(ABC):
    """A logger of one group, used by one thread at a time; open runs are of its own type."""

    @abstractmethod
    def __init__(self, group: Group) -> None:
        """Raise UserError if the program cannot be reached."""

    @abstractmethod
    def open_run(self, run: Run) -> Any:
        """Begin a run, or continue one that was begun earlier."""

    @abstractmethod
    def write_epoch(self, opened: Any, epoch: int, values: Values) -> None:
        """Add a point to the curves of a run; epochs are 1-based."""

    @abstractmethod
    def end_run(self, opened: Any, run: Run, epoch: int, status: str, metrics: Values) -> None:
        """End a run with the epoch whose weights were evaluated.

        The final metrics, by column as in ``test/ece``, are empty unless the trial is done.
        """

    @abstractmethod
    def close_run(self, opened: Any) -> None:
        """Close a run that has not ended; it may continue later."""

    @abstractmethod
    def write_figures(self, paths: Sequence[Path]) -> None:
        """Send the figures of a report, PNG files."""


def load_loggers(names: Sequence[str]) -> dict[str, type[Logger]]:
    """Import loggers and return them by name; refuse one that is unknown or not installed."""
    classes = {}
    for name in names:
        if name not in LOGGERS:
            raise UserError(f"{name!r} is unknown{nearest(name, list(LOGGERS))}", setting="log")
        try:
            module = import_module(f"tune_calib.tuning.loggers.{name}")
        except ImportError as error:
            raise UserError(
                f"{name} needs {error.name}, which is not installed: "
                f"pip install 'tune-calib[{name}]'",
                setting="log",
            ) from None
        classes[name] = getattr(module, LOGGERS[name])
    return classes


_requested: list[tuple[tuple[str, ...], list[AnyPath]]] = []


@contextlib.contextmanager
def request_loggers(names: Sequence[str]) -> Iterator[list[AnyPath]]:
    """Request loggers while the block runs; yield the list of the folders that they follow."""
    folders: list[AnyPath] = []
    _requested.append((tuple(dict.fromkeys(names)), folders))
    try:
        yield folders
    finally:
        _requested.pop()


def use_loggers(out: AnyPath) -> tuple[str, ...]:
    """Return the names of the requested loggers, and note that they follow a folder."""
    if not _requested:
        return ()
    names, folders = _requested[-1]
    if out not in folders:
        folders.append(out)
    return names


def flatten_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the slots of a spec by ``slot.key``; lists and the like as JSON."""
    return {
        f"{slot}.{key}": value if isinstance(value, int | float | str) else json.dumps(value)
        for slot in SLOTS
        for key, value in (spec.get(slot) or {}).items()
        if value is not None
    }


def format_run_name(label: str, network_seed: int, head_seed: int | None) -> str:
    """Return a readable name of a trial: its rung and its seeds."""
    both = head_seed is not None and head_seed != network_seed
    return f"{label}, seed {network_seed}/{head_seed}" if both else f"{label}, seed {network_seed}"
