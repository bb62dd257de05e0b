"""Running Ray trials: one local or remote Ray, reused actors, no logger files, no console spam."""

import contextlib
import logging
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import ray
import torch
from ray import tune
from ray._private import ray_constants
from ray._private.state import state
from ray.exceptions import RayTaskError
from ray.tune.search import Searcher

from tune_calib.console import echo
from tune_calib.engine.precision import refuse_slow
from tune_calib.errors import RefusedError, UserError
from tune_calib.paths import place
from tune_calib.progress import activity
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import atomic_write
from tune_calib.spec.names import CRASHES
from tune_calib.spec.slots.network import Precision
from tune_calib.tuning.loggers.follow import callbacks
from tune_calib.tuning.ray.progress import Progress
from tune_calib.tuning.ray.rows import Circumstances
from tune_calib.tuning.ray.stop import STOP_SIGNALS

_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Experiment snapshots serve Tuner.restore, which is not used: to do = planned - done.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Epochs report a few metrics, and what is searched for may be another.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Behind a searcher Ray Tune starts one actor at a time unless it is told.
    "TUNE_MAX_PENDING_TRIALS_PG": "16",
}

MAX_FAILURES = 3
"""How often a Ray trial is begun again after its worker or node died; it goes on from its own
checkpoint. Ray does not count preemptions."""


PART = 500
"""Ray trials of one ``Tuner``: it keeps all that it ran, about 0.1 MiB each, until it ends."""

REACH_S = 5.0
"""Within which a cluster must answer."""

NODE_CHECK_S = 5.0
"""Seconds between two checks that the Ray node of this process is alive."""

_OF_RAY = ("auto", "local")
"""Addresses that Ray itself looks up."""

ALL_EPOCHS = 10**9
"""``epochs_per_step`` of heads that nobody watches."""


@dataclass(frozen=True)
class Resources:
    """What one Ray trial may use.

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
        if self.gpus and not (
            0 < self.gpus <= 1 and math.isclose(self.per_gpu * self.gpus, 1, rel_tol=1e-9)
        ):
            raise UserError(f"gpus must be 0, 1 or 1/k, got {self.gpus}; 1/3 is 0.3333333333333333")

    @property
    def per_gpu(self) -> int:
        """Ray trials that share a GPU."""
        return round(1 / self.gpus)

    def fit_into(self, there: Mapping[str, float]) -> bool:
        """Whether a node with some resources (``CPU``, ``GPU``) has room for a Ray trial."""
        return there.get("CPU", 0) >= self.cpus and there.get("GPU", 0) >= self.gpus

    def __str__(self) -> str:
        """For messages."""
        return f"{self.cpus} CPU cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")

    def placement(self) -> tune.PlacementGroupFactory:
        """What Ray is asked for."""
        return tune.PlacementGroupFactory([{"CPU": self.cpus, "GPU": self.gpus}])


def refuse_here(address: str | None, needs: Sequence[Resources]) -> None:
    """Refuse what this machine cannot give or reach, before anything starts.

    Args:
        address: of a Ray cluster, or None for a Ray of this machine.
        needs: of the kinds of Ray trials; nothing is refused where there are none.

    Raises:
        UserError: there are too few cores, or there is no GPU, or it has no fast arithmetic of a
            precision; nobody answers at the address.
    """
    if address is not None:
        if needs:
            _refuse_unreachable(address)
        return
    here = {"CPU": os.cpu_count() or 1, "GPU": torch.cuda.device_count()}
    for need in needs:
        if not need.fit_into(here):
            raise UserError(
                f"a trial needs {need}; this machine has {here['CPU']} CPU cores and "
                f"{here['GPU']} GPUs: change network.threads or gpus, or name an `address`"
            )
        refuse_slow(need.precision, torch.device("cuda" if need.gpus else "cpu"))


def _refuse_there(needs: Sequence[Resources]) -> None:
    """Refuse what no node of the cluster can give; those that an autoscaler adds count."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    config = state.get_cluster_config()
    groups = [dict(group.resources) for group in config.node_group_configs] if config else []
    for need in needs:
        if any(need.fit_into(there) for there in [*nodes, *groups]):
            continue
        # A head without cores keeps a cluster together whose workers are still to come.
        if not any(there.get("CPU") for there in nodes):
            echo("the Ray cluster has no worker node yet: waiting for one", err=True)
            return
        largest = max(nodes, key=lambda there: (there.get("GPU", 0), there.get("CPU", 0)))
        raise UserError(
            f"a trial needs {need}; the largest node of the Ray cluster has "
            f"{largest.get('CPU', 0):g} CPU cores and {largest.get('GPU', 0):g} GPUs: change "
            "network.threads, gpus or `address`"
        )


def _refuse_unreachable(address: str) -> None:
    """Ray itself tries for ever, and warns in a language of its own."""
    if address in _OF_RAY:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        raise UserError(f"no Ray cluster at `address` {address}: name auto or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"no Ray cluster at `address` {address}: {error}") from None


@contextlib.contextmanager
def ray_session(
    address: str | None,
    environment: Mapping[str, str] = MappingProxyType({}),
    needs: Sequence[Resources] = (),
    everywhere: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Connect to a cluster, or start a Ray of this machine's cores that ends with the block.

    A Ray that this process is already connected to is used as it is, and left running.

    Args:
        address: of a running cluster (``auto`` finds it), or None.
        environment: variables that trials on a cluster are given.
        needs: of the kinds of Ray trials.
        everywhere: variables that all trials are given.

    Raises:
        UserError: there is no cluster at the address, or it has no room for a trial, or the Ray of
            this process is another one or lacks the variables.
    """
    os.environ.update(_QUIET)
    logging.getLogger("ray").setLevel(logging.ERROR)
    # What a trial died of is told in one line at the end; its traceback goes to a file.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # Whether a cluster is protected is for the user to know.
    logging.getLogger("ray._private.authentication").setLevel(logging.WARNING)
    if ray.is_initialized():
        _refuse_of_this_process(address, everywhere)
        _refuse_there(needs)
        with _watched_node():
            yield
        return
    if address is not None:
        _refuse_unreachable(address)
    # A submitted job has a runtime environment of its own, with which another would clash.
    given = {**(environment if address else {}), **everywhere}
    is_given = given and "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    activity(f"connecting to Ray at {address}" if address else "starting Ray", at_once=True)
    try:
        with contextlib.nullcontext() if address else _protected():
            ray.init(
                # Without an address Ray would join whatever cluster it finds on this machine.
                address=address or "local",
                log_to_driver=False,
                include_dashboard=None if address else False,
                runtime_env={"env_vars": given} if is_given else None,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        what = f"no Ray cluster at `address` {address}" if address else "Ray does not start here"
        raise UserError(f"{what}: {reason}") from None
    if threading.current_thread() is threading.main_thread():  # others have no signals
        for number, handler in handlers.items():
            # Ray put its own in their place.
            signal.signal(number, handler)
    try:
        _refuse_there(needs)
        with _watched_node():
            yield
    finally:
        activity("stopping Ray")
        ray.shutdown()


@contextlib.contextmanager
def _protected() -> Iterator[None]:
    """Keep others away from a Ray that starts in the block: from its ports and from its token."""
    folder = Path.home() / ".ray"
    with contextlib.suppress(OSError):
        # Ray creates the token readable for everybody.
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "auth_token").chmod(0o600)
    before = ray_constants.ENABLE_RAY_CLUSTER
    # By this switch Ray stays on the loopback interface, as it does on macOS and Windows. It turns
    # a loopback address that it is given into that of the network.
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _watched_node() -> Iterator[None]:
    """Stop the block when the Ray node of this process dies: Ray would wait for ever.

    Other nodes of a cluster may come and go. In a thread that is not the main one, which no signal
    reaches, the loss is only reported.

    Raises:
        UserError: the node died.
    """
    own = ray.get_runtime_context().get_node_id()
    main, is_main = threading.main_thread(), threading.current_thread() is threading.main_thread()
    is_over, is_lost = threading.Event(), threading.Event()
    message = (
        "the Ray node of this machine died, mostly for want of memory; nothing that ended is lost: "
        "run the same command again"
    )

    def watch() -> None:
        while not is_over.wait(NODE_CHECK_S) and not is_lost.is_set():
            # Whether a cluster that does not answer is lost is for Ray to decide.
            with contextlib.suppress(Exception):
                if any(node["NodeID"] == own and not node["Alive"] for node in ray.nodes()):
                    is_lost.set()
        if is_over.is_set():
            return
        if is_main:
            signal.pthread_kill(main.ident or 0, signal.SIGUSR2)
        else:
            echo(message, err=True)

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Ray lets no other exception through, and Tune has SIGUSR1 for itself.
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR2, interrupt) if is_main else None
    threading.Thread(target=watch, daemon=True, name="tune-calib node").start()
    try:
        yield
    except KeyboardInterrupt:
        if is_lost.is_set():
            raise UserError(message) from None
        raise
    finally:
        is_over.set()
        if is_main:
            signal.signal(signal.SIGUSR2, before)


def _refuse_of_this_process(address: str | None, everywhere: Mapping[str, str]) -> None:
    """Neither a cluster nor variables of trials can be changed once Ray runs."""
    asked = [f"`address` {address}"] if address is not None else []
    asked += [f"{name}={value} in every trial" for name, value in everywhere.items()]
    if asked:
        raise UserError(
            f"Ray runs in this process already, and {asked[0]} comes too late for it: call "
            "`ray.shutdown()` first"
        )


def slots(resources: Resources) -> int:
    """How many Ray trials of some resources run side by side on the cluster; at least 1."""
    there = ray.cluster_resources()
    counts = [int(there.get("CPU", 0) // resources.cpus)]
    if resources.gpus:
        counts.append(int(there.get("GPU", 0)) * resources.per_gpu)
    return max(1, min(counts))


class _SameFolder(tune.Callback):
    """Ends a run whose folder was moved, before it writes into a new one."""

    def __init__(self, run: Circumstances) -> None:
        self.run, self._last = run, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its callbacks for a restore, which is not used."""
        return {}

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        """Look once a second: Ray steps more often."""
        if time.monotonic() - self._last >= 1:
            refuse_moved(place(self.run.out), self.run.sweep)
            self._last = time.monotonic()


def fit(
    total: int, kind: Any, run: Circumstances, search_alg: Searcher, **tuning: Any
) -> list[Exception]:
    """Run Ray trials with reused actors.

    Args:
        total: number of Ray trials, at most.
        kind: their Trainable, with its resources.
        run: what its rows say of where they are from; of a folder that stays where it is.
        search_alg: gives the configurations.
        tuning: further settings of ``TuneConfig``: scheduler, how many at once.

    Returns:
        What Ray trials died of.

    Raises:
        RefusedError: one of them did, for all, or the folder was moved.
    """
    errors: list[Exception] = []
    for begun in range(0, total, PART):
        part = min(PART, total - begun)
        results = _tuned(kind, run, search_alg, num_samples=part, **tuning)
        errors += results.errors
        if len(results) < part:
            break
    for error in errors:
        raise_refused(error)
    keep_tracebacks(errors, run.out)
    return errors


def raise_refused(error: Exception) -> None:
    """Raise what a Ray trial refused for all of them, and nothing of other errors."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RefusedError):
        raise error.cause from None


def _tuned(kind: Any, run: Circumstances, search_alg: Searcher, **tuning: Any) -> tune.ResultGrid:
    with tempfile.TemporaryDirectory() as scratch:
        tuner = tune.Tuner(
            kind,
            tune_config=tune.TuneConfig(
                search_alg=search_alg,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
                **tuning,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                callbacks=[_SameFolder(run), Progress(), *callbacks()],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        return tuner.fit()


def keep_tracebacks(errors: Sequence[BaseException], out: str) -> None:
    """Write what trials died of to ``CRASHES``; nothing is written if none did."""
    if errors:
        with contextlib.suppress(UserError):  # a full disk is told by the trials themselves
            atomic_write(place(out) / CRASHES, "\n\n".join(map(str, errors)).encode())


def last_line(error: BaseException) -> str:
    """What a trial died of: the last line of the worker's traceback says it."""
    return str(error).strip().splitlines()[-1]
