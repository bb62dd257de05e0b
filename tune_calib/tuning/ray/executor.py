"""The interface of an executor, which runs the trials of a plan on Ray or in this process.

A driver passes trials to an executor and reads the rows that they leave on disk; it neither knows
which executor it has nor imports Ray.
"""

import contextlib
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch

from tune_calib.determinism import PORTABLE, is_portable_process
from tune_calib.engine.machine import refuse_slow
from tune_calib.errors import UserError
from tune_calib.paths import atomic_write, parse_path
from tune_calib.progress import ProgressEvent
from tune_calib.spec.names import CRASHES, IN_PROCESS
from tune_calib.spec.slots.network import Precision
from tune_calib.spec.strict import check_share
from tune_calib.tuning.loggers.base import report_rows
from tune_calib.tuning.progress.screen import current_tracker
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.rows import Provenance

OVER = "FINISHED"  # the end of a source of trials, as Ray's searchers name it
# Ray trials of one ``Tuner``: it keeps all that it ran, about 0.1 MiB each, until it ends.
PART = 500
ALL_EPOCHS = 10**9  # ``epochs_per_step`` of heads without a scheduler
REACH_S = 5.0  # in which a cluster must answer


@dataclass(frozen=True)
class Resources:
    """The CPU cores of one trial, also its torch threads, and its GPUs: 0, 1 or 1/k."""

    cpus: int
    gpus: float = 0.0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        """Refuse fractions that leave a part of a GPU unused."""
        try:
            check_share(self.gpus)
        except ValueError as error:
            raise UserError(f"{error}, got {self.gpus}", setting="gpus") from None

    @property
    def per_gpu(self) -> int:
        """Return how many trials share a GPU."""
        return round(1 / self.gpus)

    def fit_into(self, node: Mapping[str, float]) -> bool:
        """Return whether a node with some resources (``CPU``, ``GPU``) has room for a trial."""
        return node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus

    def __str__(self) -> str:
        """Format the resources for messages."""
        return f"{self.cpus} CPU cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")


@dataclass(frozen=True)
class Halving:
    """The rule by which Ray stops networks: a column of their reports at the same epoch."""

    column: str
    mode: str | None
    epochs: int


class TrialSource(Protocol):
    """Hands out trials; what it needs to continue is on disk or in a study."""

    total: int  # it has no more trials

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next trial, None while it waits for others, or OVER."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note how a trial ended."""


class Pool(Protocol):
    """Executes populations of heads; they end in any order."""

    def submit(self, trial: RayTrial) -> None:
        """Queue a trial."""

    def wait(self) -> tuple[RayTrial, str | None]:
        """Wait for the next trial to end; also return what it crashed of."""


class Executor(ABC):
    """Executes the trials of a run, each on so many GPUs."""

    def __init__(self, provenance: Provenance, gpus: float = 0.0) -> None:
        self.provenance, self.gpus = provenance, gpus

    @abstractmethod
    def run(
        self, source: TrialSource, at_once: int | None = None, halving: Halving | None = None
    ) -> list[str]:
        """Execute the trials of a source; return a line for each that crashed.

        Side by side run ``at_once`` of them, or as many as there is room for. What one trial
        refuses for all is raised as RefusedError, as is a folder that was moved.
        """

    @abstractmethod
    def pool(self, size: int, cpus: int) -> Pool:
        """Return a pool of at most so many workers with some CPU cores each."""

    @abstractmethod
    def read_events(self, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """Return the latest event of each named trial that has sent one."""


def refuse_here(
    address: str | None,
    needs: Sequence[Resources],
    everywhere: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse what this machine cannot give or reach, before anything starts."""
    if address == IN_PROCESS:
        for need in needs:
            if need.gpus not in (0, 1):
                raise UserError(
                    f"`address` {IN_PROCESS} runs one trial at a time, which has the GPU alone: "
                    f"take `gpus` 1 instead of {need.gpus:g}"
                )
        if needs and PORTABLE.items() <= everywhere.items() and not is_portable_process():
            wanted = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
            raise UserError(
                f"network.portable with `address` {IN_PROCESS} needs {wanted} in the environment "
                "before the program starts; with Ray it needs nothing"
            )
    elif address is not None:
        if needs:
            refuse_unreachable(address)
        return
    here = {"CPU": os.cpu_count() or 1, "GPU": torch.cuda.device_count()}
    for need in needs:
        if not need.fit_into(here):
            raise UserError(
                f"a trial needs {need}; this machine has {here['CPU']} CPU cores and "
                f"{here['GPU']} GPUs: change network.threads or gpus, or name an `address`"
            )
        refuse_slow(need.precision, torch.device("cuda" if need.gpus else "cpu"))


def refuse_unreachable(address: str) -> None:
    """Refuse an address at which nobody listens; Ray itself would try for ever."""
    if address in ("auto", "local"):  # Ray looks them up
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        raise UserError(
            f"no Ray cluster at `address` {address}: name auto or HOST:PORT, or "
            f"{IN_PROCESS} to run without Ray"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"no Ray cluster at `address` {address}: {error}") from None


def configuration(provenance: Provenance, work: Mapping[str, Any]) -> dict[str, Any]:
    """Build the configuration of a worker for a trial."""
    return {"run": provenance.plain(), "work": work, "epochs_per_step": ALL_EPOCHS}


def report_crashes(errors: Sequence[BaseException | str], out: str) -> list[str]:
    """Write what trials died of to ``CRASHES``; return the last line of each, the error itself."""
    if errors:
        with contextlib.suppress(UserError):  # on a full disk the trials themselves fail
            atomic_write(parse_path(out) / CRASHES, "\n\n".join(map(str, errors)).encode())
    return [str(error).strip().splitlines()[-1] for error in errors]


def show_begin(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial begins, by its configuration (``plan.RayTrial.config``)."""
    if (tracker := current_tracker()) is not None:
        tracker.start(work["name"], work["title"], f"{work['kind']}s", work["weight"])


def show_end(work: Mapping[str, Any], result: Mapping[str, Any] | None) -> None:
    """Show how a Ray trial ended, by its last report or None for a crash; log its rows."""
    report_rows(work["name"])
    if (tracker := current_tracker()) is None:
        return
    count = len(work["trials"])
    if result is None:  # its dependents will never run
        statuses = {"crashed": max(count, len(work.get("dependents", ())))}
    else:  # without a status a scheduler stopped it
        statuses = result.get("statuses", {result.get("status", "stopped"): count})
    tracker.end(work["name"], statuses)
