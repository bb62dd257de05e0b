"""What carries out the trials of a plan: a Ray cluster, or this process (``address`` none).

A driver hands trials to an executor and reads the rows that they leave on disk; it does not know
which executor it has, and does not import Ray.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch

from tune_calib.determinism import PORTABLE, is_portable_process
from tune_calib.engine.precision import refuse_slow
from tune_calib.errors import UserError
from tune_calib.paths import environment, parse_path
from tune_calib.progress import ProgressEvent
from tune_calib.results.tables import atomic_write
from tune_calib.spec.names import CRASHES, IN_PROCESS
from tune_calib.spec.request import check_share
from tune_calib.spec.slots.network import Precision
from tune_calib.tuning.location import RunLocation
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.resumed import tell_other_machine

OVER = "FINISHED"
"""What a feed says at its end, as Ray's searchers do."""

PART = 500
"""Ray trials of one ``Tuner``: it keeps all that it ran, about 0.1 MiB each, until it ends."""

ALL_EPOCHS = 10**9
"""``epochs_per_step`` of heads that nobody watches."""

REACH_S = 5.0
"""Within which a cluster must answer."""

_OF_RAY = ("auto", "local")
"""Addresses that Ray itself looks up."""


@dataclass(frozen=True)
class Resources:
    """What one trial may use.

    Attributes:
        cpus: CPU cores, also its torch threads.
        gpus: 0, 1 or a fraction 1/k.
        precision: of its network.
    """

    cpus: int
    gpus: float = 0.0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        """Refuse fractions that leave a part of a GPU unused."""
        try:
            check_share(self.gpus)
        except ValueError as error:
            raise UserError(f"`gpus` {error}, got {self.gpus}") from None

    @property
    def per_gpu(self) -> int:
        """Trials that share a GPU."""
        return round(1 / self.gpus)

    def fit_into(self, there: Mapping[str, float]) -> bool:
        """Whether a node with some resources (``CPU``, ``GPU``) has room for a trial."""
        return there.get("CPU", 0) >= self.cpus and there.get("GPU", 0) >= self.gpus

    def __str__(self) -> str:
        """For messages."""
        return f"{self.cpus} CPU cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")


@dataclass(frozen=True)
class Halving:
    """When Ray stops networks that are behind others at the same epoch.

    Attributes:
        column: of the reports that is compared.
        mode: ``min`` or ``max``.
        epochs: of a network.
    """

    column: str
    mode: str | None
    epochs: int


class Feed(Protocol):
    """Hands out trials; what it needs to go on lies on disk or in a study."""

    def suggest(self, trial_id: str) -> Any:
        """The configuration of the next trial, None while it waits for others, or ``OVER``."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Take note of how a trial ended."""


class Pool(Protocol):
    """Carries out populations of heads in the order in which they end."""

    def submit(self, trial: RayTrial) -> None:
        """Queue a trial."""

    def wait(self) -> tuple[RayTrial, str | None]:
        """Wait for the next trial to end; also returns what it crashed of."""


class Executor(Protocol):
    """Carries trials out: a driver owns one while it works."""

    def run(
        self,
        feed: Feed,
        total: int,
        provenance: Provenance,
        gpus: float,
        at_once: int | None = None,
        halving: Halving | None = None,
    ) -> list[Exception]:
        """Carry out what a feed hands out.

        Args:
            feed: gives the trials.
            total: how many, at most.
            provenance: what their rows say of where they are from.
            gpus: of each.
            at_once: side by side, at most; as many as there is room for unless given.
            halving: when a network is stopped.

        Returns:
            What trials died of.

        Raises:
            RefusedError: one of them did, for all, or the folder was moved.
        """

    def pool(self, size: int, resources: Resources, provenance: Provenance) -> Pool:
        """Return a pool of at most so many workers with some resources each."""

    def told(self, board: str, names: Sequence[str], /) -> Mapping[str, ProgressEvent]:
        """What trials do, by name; nothing of those that said nothing yet."""

    def forget(self, board: str, /) -> None:
        """Leave nothing behind of what trials said."""


@contextlib.contextmanager
def open_executor(
    location: RunLocation, needs: Sequence[Resources], everywhere: Mapping[str, str]
) -> Iterator[Executor]:
    """Start the executor of a run, with variables for all of its trials, while the block runs."""
    if not location.uses_ray:
        from tune_calib.tuning.ray.in_process import in_process

        with in_process(everywhere) as executor:
            tell_other_machine(location.out, location.address)
            yield executor
        return

    from tune_calib.tuning.ray.launch import RayExecutor, ray_session

    with ray_session(
        location.address, environment(location.out, location.store), needs, everywhere
    ):
        tell_other_machine(location.out, location.address)
        yield RayExecutor()


def refuse_here(
    address: str | None,
    needs: Sequence[Resources],
    everywhere: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse what this machine cannot give or reach, before anything starts.

    Args:
        address: of a Ray cluster; None for a Ray of this machine, ``IN_PROCESS`` for no Ray.
        needs: of the kinds of trials; nothing is refused where there are none.
        everywhere: variables that all trials need.

    Raises:
        UserError: there are too few cores, or there is no GPU, or it has no fast arithmetic of a
            precision; nobody answers at the address; this process is none for the trials.
    """
    if address == IN_PROCESS:
        _refuse_in_process(needs, everywhere)
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


def _refuse_in_process(needs: Sequence[Resources], everywhere: Mapping[str, str]) -> None:
    for need in needs:
        if need.gpus not in (0, 1):
            raise UserError(
                f"`address` {IN_PROCESS} runs one trial at a time, which has the GPU alone: take "
                f"`gpus` 1 instead of {need.gpus:g}"
            )
    if needs and PORTABLE.items() <= everywhere.items() and not is_portable_process():
        wanted = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        raise UserError(
            f"network.portable with `address` {IN_PROCESS} needs {wanted} in the environment "
            "before the program starts; with Ray it needs nothing"
        )


def refuse_unreachable(address: str) -> None:
    """Refuse an address at which nobody listens.

    Ray itself tries for ever, and warns in a language of its own.
    """
    if address in _OF_RAY:
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
    """What a worker is given of a trial."""
    return {"run": provenance.plain(), "work": work, "epochs_per_step": ALL_EPOCHS}


def keep_tracebacks(errors: Sequence[BaseException], out: str) -> None:
    """Write what trials died of to ``CRASHES``; nothing is written if none did."""
    if errors:
        with contextlib.suppress(UserError):  # a full disk is told by the trials themselves
            atomic_write(parse_path(out) / CRASHES, "\n\n".join(map(str, errors)).encode())


def last_line(error: BaseException) -> str:
    """What a trial died of: the last line of the worker's traceback says it."""
    return str(error).strip().splitlines()[-1]
