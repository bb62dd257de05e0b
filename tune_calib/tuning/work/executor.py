"""The interface of executors, by which drivers run trials on Ray or in this process alike."""

import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tune_calib.engine.machine import count_cores, refuse_slow
from tune_calib.errors import UserError, find_cause
from tune_calib.files.paths import atomic_write, parse_path
from tune_calib.progress import ProgressEvent
from tune_calib.spec.names import CRASHES, IN_PROCESS
from tune_calib.spec.slots.network import Precision
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import Provenance

DONE = "done"  # the key of the last report of a job, as Ray Tune names it
OVER = "FINISHED"  # the end of a source of trials, as in Ray's searchers
OTHER = f"start it, or set `address` to another cluster, or to {IN_PROCESS} to run without Ray"

Message = ProgressEvent | dict[str, Any] | str
"""An event of a job, the report of a step, or the traceback of its crash."""


def is_last(message: Message) -> bool:
    return isinstance(message, str) or (isinstance(message, dict) and bool(message.get(DONE)))


@dataclass(frozen=True)
class Resources:
    """The CPU cores of a trial, which are also its torch threads, and its GPUs: 0, 1 or 1/k."""

    cpus: int
    gpus: float = 0.0
    precision: Precision = "fp32"

    def fit_into(self, node: Mapping[str, float]) -> bool:
        return node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.cpus} CPU cores{gpus}"


class Source(Protocol):
    """Yields jobs; its state is on disk or in a study, so that it can continue."""

    title: str
    total: int  # maximum number of jobs
    at_once: int | None  # jobs in parallel; None: as many as fit
    units: int  # which the live view counts
    unit: str
    kinds: Mapping[str, int]  # total weight of each kind of jobs

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next trial, None to wait for others, or ``OVER``."""

    def end(self, trial_id: str) -> None:
        """Record the end of a trial, which crashed if it wrote no rows."""


class Executor(ABC):
    def __init__(self, provenance: Provenance, context: Context | None = None) -> None:
        self.provenance, self.context = provenance, context or Context()
        self.errors: dict[str, str] = {}  # tracebacks of the jobs of the last source, by name

    @abstractmethod
    def run(self, source: Source) -> dict[str, str]:
        """Execute the jobs of a source.

        Return a line for each crashed job by its name; raise RefusedError if a job refuses the
        whole run.
        """

    def show_begin(self, job: Mapping[str, Any]) -> None:
        tracker, kind = self.context.view.tracker, f"{job['kind']}s"
        tracker.start(job["name"], job["title"], kind, weight=job["weight"])

    def show(self, job: Mapping[str, Any], message: Message) -> None:
        """Show a progress event of a job, or log the report of a step."""
        if isinstance(message, ProgressEvent):
            self.context.view.tracker.update({job["name"]: message})
        elif isinstance(message, dict) and self.context.follower is not None:
            self.context.follower.send_epoch(job, message)

    def show_end(self, job: Mapping[str, Any], last: Message | None) -> None:
        """Show the end of a job, by its last report or the traceback of a crash; log its rows."""
        if self.context.follower is not None:
            self.context.follower.send_rows(job["name"])
        count = len(job["trials"])
        # The dependents of a crashed job cannot run.
        statuses = {"crashed": max(count, len(job.get("dependents", ())))}
        if isinstance(last, dict):
            statuses = last.get("statuses", {last.get("status", "crashed"): count})
        elif isinstance(last, str):
            self.errors[job["name"]] = last
        self.context.view.tracker.end(job["name"], statuses)


def refuse_here(address: str | None, needs: Sequence[Resources]) -> None:
    """Refuse resources or a cluster that this machine lacks, before anything starts."""
    if address == IN_PROCESS:
        for need in needs:
            if need.gpus not in (0, 1):
                raise UserError(
                    f"`address` {IN_PROCESS} runs one trial at a time, which uses the whole GPU: "
                    f"set `gpus` to 1 instead of {need.gpus:g}"
                )
    elif address is not None:
        if needs:
            refuse_unreachable(address)
        return
    machine = {"CPU": count_cores(), "GPU": torch.cuda.device_count()}
    for need in needs:
        if not need.fit_into(machine):
            raise UserError(
                f"a trial needs {need}; this machine has {machine['CPU']} CPU cores and "
                f"{machine['GPU']} GPUs: change network.threads or gpus, or name an `address`"
            )
        device = "cuda" if need.gpus else "cpu"
        refuse_slow(need.precision, torch.device(device))


def refuse_unreachable(address: str) -> None:
    """Refuse an address where no cluster responds; Ray would retry forever."""
    if address in ("auto", "local"):  # Ray resolves them
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        raise UserError(
            f"no Ray cluster at `address` {address}: use auto, HOST:PORT, or {IN_PROCESS} to run "
            "without Ray"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"no Ray cluster at `address` {address}: {error}; {OTHER}") from None


def configuration(provenance: Provenance, job: Mapping[str, Any]) -> dict[str, Any]:
    # No scheduler reads the reports of heads after each epoch.
    return {"run": provenance.plain(), "job": job, "epochs_per_step": 10**9}


def report_crashes(errors: Mapping[str, BaseException | str], out: str) -> dict[str, str]:
    """Write the tracebacks of crashed trials to a file; return the cause of each in one line."""
    if errors:
        with contextlib.suppress(UserError):  # on a full disk the trials themselves fail
            text = "\n\n".join(map(str, errors.values()))
            atomic_write(parse_path(out) / CRASHES, text.encode())
    return {name: find_cause(error) for name, error in errors.items()}
