"""Loggers follow a folder of results while trials run, on a thread of their own.

The truth is on disk: what a result row says is sent, whoever wrote it, and what was sent already
is not sent again. Epochs of networks in training come from what carries them out, so that their
curves grow while one looks. Ray's own loggers make a run of each Ray trial; one may carry out 32
heads, and sees no number of test.
"""

import contextlib
import json
import math
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.paths import Place, RemotePlace, files
from tune_calib.progress import activity
from tune_calib.results.tables import is_metric_column, read_table
from tune_calib.spec.names import SLOTS
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.loggers.base import Group, Logger, Run, Values, name_of, settings_of
from tune_calib.tuning.loggers.known import loggers, names_for
from tune_calib.tuning.loggers.sent import Sent

POLL_S = 2.0
REMOTE_POLL_S = 30.0
"""Seconds between two looks: an object store asks a price."""

_following: list["Follower"] = []


class _Target:
    """A logger, what it was sent, and which epochs of its open runs."""

    def __init__(self, name: str, kind: type[Logger], group: Group) -> None:
        self.name = name
        self.logger = kind(group)
        self.sent = Sent(group.out, name)
        self.epochs: dict[str, set[int]] = {}
        self.ended: set[str] = set()

    def epoch(self, run: Run, epoch: int, values: Values) -> None:
        """Send an epoch of a network in training; Ray may tell of it behind its row."""
        if run.key in self.ended:
            return
        if run.key not in self.epochs:
            self.logger.begin(run)
        self.epochs.setdefault(run.key, set()).add(epoch)
        self.logger.epoch(run.key, epoch, values)

    def end_network(self, run: Run, epoch: int, status: str) -> None:
        """End a network that has no trial of its own, and so no row."""
        if self.epochs.pop(run.key, None):
            self.logger.end(run.key, epoch, status, {})

    def end(self, run: Run, row: Mapping[str, Any], curves: Mapping[int, Values]) -> None:
        """Send a trial that ended, with the part of its curves that was not sent live."""
        self.ended.add(run.key)
        if self.sent.holds(run.key, row["status"]):
            return
        self.logger.begin(run)
        for epoch in sorted(curves.keys() - self.epochs.pop(run.key, set())):
            self.logger.epoch(run.key, epoch, curves[epoch])
        self.logger.end(run.key, row["epoch"] or 0, row["status"], _metrics(row))
        self.sent.add(run.key, row["status"])


@dataclass(frozen=True)
class _Report:
    """What a network in training reports: an epoch, or how it ended.

    Attributes:
        run: its run.
        epoch: 1-based.
        values: of the epoch by name.
        status: how it ended; empty while it trains.
        has_row: whether a row will tell the end of the run.
    """

    run: Run
    epoch: int
    values: Values
    status: str
    has_row: bool

    def send(self, target: _Target) -> None:
        if not self.status:
            target.epoch(self.run, self.epoch, self.values)
        elif not self.has_row:
            target.end_network(self.run, self.epoch, self.status)


class Follower:
    """Sends the rows of a folder to some loggers as they appear.

    Args:
        names: of the loggers.
        group: of the folder.

    Raises:
        UserError: a logger cannot be written to.
    """

    def __init__(self, names: Sequence[str], group: Group) -> None:
        self._out = group.out
        self._targets = [_Target(name, kind, group) for name, kind in loggers(names).items()]
        self._read: set[str] = set()
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="loggers", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def report(self, report: "_Report") -> None:
        """Queue what a network in training reports."""
        self._reports.put(report)

    def finish(self) -> None:
        """Send what is left, and close the loggers."""
        self._over.set()
        if self._targets and self._thread.is_alive():
            activity(f"sending to {', '.join(target.name for target in self._targets)}")
        self._thread.join()

    def _follow(self) -> None:
        every_s = REMOTE_POLL_S if isinstance(self._out, RemotePlace) else POLL_S
        while True:
            is_over = self._over.wait(every_s)
            self._send_reports()
            self._send_rows()
            if is_over:
                break
        for target in list(self._targets):
            with self._told(target):
                target.logger.close()

    def _send_reports(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                report = self._reports.get_nowait()
                for target in list(self._targets):
                    with self._told(target):
                        report.send(target)

    def _send_rows(self) -> None:
        names = [path.name.removesuffix(".parquet") for path in _trial_files(self._out)]
        for name in names:
            if name in self._read or not self._targets:
                continue
            try:
                trials = read_table(self._out, "trials", name).to_pylist()
                curves = _curves(self._out, name)
            except (UserError, OSError):
                continue  # whoever needs the file tells of it; it is tried again
            self._read.add(name)
            for row in trials:
                for target in list(self._targets):
                    with self._told(target):
                        target.end(_run_of(row), row, curves.get(row["spec_hash"], {}))

    @contextlib.contextmanager
    def _told(self, target: _Target) -> Iterator[None]:
        """Give up a logger that fails: the results are what counts."""
        try:
            yield
        except Exception as error:
            self._targets.remove(target)
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            echo(
                f"{target.name} takes no more ({reason}); the results are whole, and the same "
                "command again sends it what is missing",
                err=True,
            )


def report_network(work: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Tell the loggers of an epoch of a network in training, or how the network ended.

    Args:
        work: what its worker carries out.
        result: what it reports.
    """
    if not _following or work.get("kind") != "network" or "epoch" not in result:
        return
    values = {
        name: float(value)
        for name, value in result.items()
        if "/" in name and isinstance(value, int | float) and math.isfinite(value)
    }
    status = result.get("status", "")
    run, has_row = _run_of_network(work)
    report = _Report(run, result["epoch"], values, status, has_row)
    for follower in _following:
        follower.report(report)


@contextlib.contextmanager
def followed(out: Place, sweep: str) -> Iterator[None]:
    """Let the loggers that are asked for follow a folder while the block runs.

    They are sent all that it holds.

    Args:
        out: the folder.
        sweep: identity of its question.

    Raises:
        UserError: a logger is unknown, not installed, or cannot be written to.
    """
    names = names_for(out)
    if not names:
        yield
        return
    follower = Follower(names, Group.of(out, sweep))
    _following.append(follower)
    follower.start()
    try:
        yield
    finally:
        _following.remove(follower)
        follower.finish()


def _trial_files(out: Place) -> list[Place]:
    return [path for path, _ in files(out / "trials", "*.parquet")]


def _curves(out: Place, name: str) -> dict[str, dict[int, dict[str, float]]]:
    """Values by spec hash, epoch and name."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in read_table(out, "curves", name).to_pylist():
        if row["value"] is not None and math.isfinite(row["value"]):
            epochs = found.setdefault(row["spec_hash"], {})
            epochs.setdefault(row["epoch"], {})[row["name"]] = row["value"]
    return found


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in row.items()
        if is_metric_column(name) and value is not None and math.isfinite(value)
    }


def _run_of(row: Mapping[str, Any]) -> Run:
    slots = {slot: json.loads(row[slot]) for slot in SLOTS if row[slot]}
    name = name_of(row["rung_label"], row["network_seed"], row["head_seed"])
    return Run(row["spec_hash"], name, settings_of(slots))


def _run_of_network(work: Mapping[str, Any]) -> tuple[Run, bool]:
    """The run of a network in training, and whether it is that of a trial, which has a row."""
    own = next((trial for trial in work["trials"] if not trial["spec"].get("posthoc")), None)
    first = own or (work["trials"] or work["dependents"])[0]
    spec = TrialSpec.build(**first["spec"])
    if own is not None:
        name = name_of(own["label"], spec.network.seed, None)
        return Run(spec.hash, name, settings_of(own["spec"])), True
    slots = {slot: first["spec"][slot] for slot in ("data", "network")}
    name = name_of(f"network {spec.network.method}", spec.network.seed, None)
    return Run(spec.network_id, name, settings_of(slots)), False
