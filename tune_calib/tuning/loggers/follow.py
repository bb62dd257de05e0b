"""Loggers are sent the rows of a folder as its trials end, on a thread of their own.

The truth is on disk: what a result row says is sent, whoever wrote it, and what was sent already
is not sent again. Epochs of networks in training come from what carries them out, so that their
curves grow while one looks. Ray's own loggers make a run of each Ray trial; one may carry out 32
heads, and sees no number of test.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, files
from tune_calib.progress import report_progress
from tune_calib.results.tables import is_metric_column, read_table
from tune_calib.spec.names import SLOTS
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.loggers.base import Group, Logger, Run, Values, name_of, settings_of
from tune_calib.tuning.loggers.known import loggers, names_for
from tune_calib.tuning.loggers.sent import Sent

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


class Follower:
    """Sends the rows of a folder to some loggers; no trial waits for it.

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
        self._sender = ThreadPoolExecutor(1, "loggers")

    def send_rows(self, name: str | None = None) -> None:
        """Send the rows of a file; of all files that were not sent yet unless one is named."""
        self._submit(self._send_files, name)

    def send_epoch(self, run: Run, epoch: int, values: Values) -> None:
        """Send an epoch of a network in training."""
        self._submit(self._each, lambda target: target.epoch(run, epoch, values))

    def end_network(self, run: Run, epoch: int, status: str) -> None:
        """Send the end of a network that no row tells."""
        self._submit(self._each, lambda target: target.end_network(run, epoch, status))

    def close(self) -> None:
        """Send what is left, and close the loggers."""
        self.send_rows()
        self._submit(self._each, lambda target: target.logger.close())
        if self._targets:
            report_progress(f"sending to {', '.join(target.name for target in self._targets)}")
        self._sender.shutdown()

    def _submit(self, send: Callable[..., None], *arguments: Any) -> None:
        # The callback raises an unexpected error once more, so that it is logged with a traceback.
        self._sender.submit(send, *arguments).add_done_callback(Future.result)

    def _send_files(self, name: str | None) -> None:
        found = files(self._out / "trials", f"{name or '*'}.parquet") if self._targets else []
        for each in [path.name.removesuffix(".parquet") for path, _ in found]:
            # One that is named was written just now, perhaps again: its trial was tried once more.
            if name is None and each in self._read:
                continue
            try:
                trials = read_table(self._out, "trials", each).to_pylist()
                curves = _curves(self._out, each)
            except (UserError, OSError):
                continue  # whoever needs the file tells of it
            self._read.add(each)
            for row in trials:
                end = partial(_Target.end, run=_run_of(row), row=row)
                self._each(partial(end, curves=curves.get(row["spec_hash"], {})))

    def _each(self, send: Callable[[_Target], None]) -> None:
        """Send to every logger, and give up one that fails: the results are what counts."""
        for target in list(self._targets):
            try:
                send(target)
            except Exception as error:
                self._targets.remove(target)
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                echo(
                    f"{target.name} takes no more ({reason}); the results are whole, and the same "
                    "command again sends it what is missing",
                    err=True,
                )


def report_rows(name: str) -> None:
    """Tell the loggers that a result file is written."""
    for follower in _following:
        follower.send_rows(name)


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
    run, has_row = _run_of_network(work)
    for follower in _following:
        if not result.get("status"):
            follower.send_epoch(run, result["epoch"], values)
        elif not has_row:
            follower.end_network(run, result["epoch"], result["status"])


@contextlib.contextmanager
def followed(out: AnyPath, sweep: str) -> Iterator[None]:
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
    follower.send_rows()
    try:
        yield
    finally:
        _following.remove(follower)
        follower.close()


def _curves(out: AnyPath, name: str) -> dict[str, dict[int, dict[str, float]]]:
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
