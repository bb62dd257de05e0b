"""Send the rows of a folder to loggers, which are programs that record experiments.

Ray's own loggers would make a run of each Ray trial, which may train 32 heads, and they never see a
metric of test.
"""

import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar

from tune_calib.console import echo
from tune_calib.errors import DamagedFileError, UserError, find_cause
from tune_calib.files.documents import seal, unseal
from tune_calib.files.paths import AnyPath, atomic_write, fetch_files
from tune_calib.progress import report_progress
from tune_calib.results.tables import is_metric_column, read_slots, read_table
from tune_calib.spec.names import SLOTS
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import nearest

Values = Mapping[str, float]

# The class of each logger; its name is also that of its module and of its extra.
LOGGERS = {"tensorboard": "TensorBoard", "wandb": "WeightsAndBiases", "mlflow": "MLflow"}
FOLDER = "logs"  # the subfolder of a file per logger, which records what was sent


@dataclass(frozen=True)
class Run:
    key: str  # spec hash, or the network id of a network that is not a trial itself
    name: str  # readable, e.g. ``vanilla, seed 3``
    settings: Mapping[str, Any]  # by ``slot.key``: numbers, strings and booleans


class Logger(ABC):
    """Sends the trials of a folder to a program; its open runs are objects of that program."""

    remedy: ClassVar[str] = "leave it out"  # if it cannot be reached

    def __init__(self, name: str, out: AnyPath, sweep: str) -> None:
        self.name, self.out, self.sweep = name, out, sweep
        folder = out.resolve()
        self.group = f"{folder.parent.name}/{folder.name}"  # e.g. ``runs/mac_cal-digits``
        self._file = out / FOLDER / f"{name}.json"
        self._sent: dict[str, str] = {}  # status by key of a trial
        # Otherwise everything is sent again.
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            self._sent = unseal(self._file.read_bytes(), self._file)
        self._open: dict[str, tuple[Any, set[int]]] = {}  # runs by key, and their epochs
        report_progress(f"connecting to {name}")
        try:
            self._connect()
        except UserError:
            raise
        except Exception as error:  # of a library, a server or a mistyped key
            reason = f"{name}: {_describe(error)}; {self.remedy}"
            raise UserError(reason, setting="log") from None

    @abstractmethod
    def _connect(self) -> None:
        """Raise an exception, in less than a minute, if the program cannot be reached."""

    @abstractmethod
    def _open_run(self, run: Run) -> Any:
        """Begin a run, or continue one that was begun earlier."""

    @abstractmethod
    def _write_epoch(self, opened: Any, epoch: int, values: Values) -> None:
        """Add a point to each curve of a run; epochs are 1-based."""

    @abstractmethod
    def _end_run(self, opened: Any, run: Run, epoch: int, status: str, final: Values) -> None:
        """End a run; ``final``, e.g. ``final/test/ece``, is empty unless the trial is done."""

    @abstractmethod
    def _close_run(self, opened: Any) -> None:
        """Close an unfinished run, which may continue later."""

    def _begin(self, run: Run) -> tuple[Any, set[int]]:
        if run.key not in self._open:
            self._open[run.key] = self._open_run(run), set()
        return self._open[run.key]

    def send_epoch(self, run: Run, epoch: int, values: Values) -> None:
        """Send an epoch of a network in training; Ray may report it after its row."""
        if run.key not in self._sent:
            opened, epochs = self._begin(run)
            epochs.add(epoch)
            self._write_epoch(opened, epoch, values)

    def end_network(self, run: Run, epoch: int, status: str) -> None:
        if run.key in self._open:
            opened, _ = self._open.pop(run.key)
            self._end_run(opened, run, epoch, status=status, final={})

    def send_row(self, run: Run, row: Mapping[str, Any], curves: Mapping[int, Values]) -> None:
        """Send a finished trial, with the epochs that were not sent during training."""
        if self._sent.get(run.key) == row["status"]:
            return
        opened, epochs = self._begin(run)
        for epoch in sorted(curves.keys() - epochs):
            self._write_epoch(opened, epoch, curves[epoch])
        final = _finite({f"final/{name}": row[name] for name in row if is_metric_column(name)})
        self._end_run(opened, run, row["epoch"] or 0, status=row["status"], final=final)
        del self._open[run.key]
        self._sent[run.key] = row["status"]
        atomic_write(self._file, seal(self._sent))

    def close(self) -> None:
        for opened, _ in self._open.values():
            self._close_run(opened)


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


def flatten_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the slots of a spec by ``slot.key``; other types as JSON."""
    settings: dict[str, Any] = {}
    for slot in SLOTS:
        for key, value in (spec.get(slot) or {}).items():
            if isinstance(value, int | float | str):
                settings[f"{slot}.{key}"] = value
            elif value is not None:
                settings[f"{slot}.{key}"] = json.dumps(value)
    return settings


def format_run_name(label: str, network_seed: int, head_seed: int | None) -> str:
    if head_seed is None or head_seed == network_seed:
        return f"{label}, seed {network_seed}"
    return f"{label}, seed {network_seed}/{head_seed}"


class Follower:
    def __init__(self, names: list[str], out: AnyPath, sweep: str) -> None:
        self._names, self._out = names, out
        self._loggers = [kind(name, out, sweep) for name, kind in load_loggers(names).items()]
        self._read: set[str] = set()

    def send_epoch(self, job: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Send a worker's report on a network: an epoch, or its end."""
        if job.get("kind") != "network" or "epoch" not in result:
            return
        values = _finite({name: value for name, value in result.items() if "/" in name})
        trial = next((plain for plain in job["trials"] if not plain["spec"].get("posthoc")), None)
        first = trial or (job["trials"] or job["dependents"])[0]
        spec, slots = TrialSpec.build(**first["spec"]), first["spec"]
        key, label = spec.hash, first["label"]
        if trial is None:  # the network has no row
            key, label = spec.network_id, f"network {spec.network.method}"
            slots = {"data": slots["data"], "network": slots["network"]}
        run = Run(key, format_run_name(label, spec.network.seed, None), flatten_settings(slots))
        epoch, status = result["epoch"], result.get("status")
        if not status:
            self._call(Logger.send_epoch, run, epoch, values)
        elif trial is None:
            self._call(Logger.end_network, run, epoch, status)

    def close(self) -> None:
        if self._loggers:
            report_progress(f"sending to {', '.join(map(attrgetter('name'), self._loggers))}")
        self.send_rows()
        self._call(Logger.close)

    def send_rows(self, name: str | None = None) -> None:
        """Send the rows of a file, or of all files that were not sent yet."""
        if not self._loggers:
            return
        for path, _ in fetch_files(self._out / "trials", f"{name or '*'}.parquet"):
            file = path.name.removesuffix(".parquet")
            # A file that is named was just written, perhaps again by a retried trial.
            if name is None and file in self._read:
                continue
            try:
                trials = read_table(self._out, "trials", file).to_pylist()
                points = read_table(self._out, "curves", file).to_pylist()
            except (UserError, OSError):
                continue  # readers that need the file report it
            self._read.add(file)
            curves: dict[str, dict[int, dict[str, float]]] = {}  # by spec hash and epoch
            for row in points:
                if value := _finite({row["name"]: row["value"]}):
                    epochs = curves.setdefault(row["spec_hash"], {})
                    epochs.setdefault(row["epoch"], {}).update(value)
            for row in trials:
                label = format_run_name(row["rung_label"], row["network_seed"], row["head_seed"])
                if row["split_seed"] is not None:
                    label += f", split {row['split_seed']}"
                run = Run(row["spec_hash"], label, flatten_settings(read_slots(row)))
                self._call(Logger.send_row, run, row, curves.get(run.key, {}))

    def _call(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call a method of every logger; drop one that fails, since no result may depend on it."""
        for logger in list(self._loggers):
            try:
                action(logger, *arguments)
            except Exception as error:
                self._loggers.remove(logger)
                self._names.remove(logger.name)  # nor is it asked again for the rest of the call
                echo(
                    f"logging to {logger.name} failed ({_describe(error)}); the results are "
                    "complete, and the same command sends the missing rows when it is run again",
                    err=True,
                )


def _describe(error: Exception) -> str:
    return find_cause(f"{type(error).__name__}: {error}")


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    finite = {}
    for name, value in values.items():
        if isinstance(value, int | float) and math.isfinite(value):
            finite[name] = float(value)
    return finite
