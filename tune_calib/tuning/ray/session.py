"""Connect to a Ray cluster, or start Ray on this machine for the duration of a run."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import ray
from ray._private import ray_constants
from ray._private.state import state
from ray.exceptions import RayError, RayTaskError

from tune_calib.console import echo
from tune_calib.engine.machine import count_cores
from tune_calib.errors import UserError, find_cause
from tune_calib.progress import report_progress
from tune_calib.tuning.work.executor import OTHER, Resources, refuse_unreachable

_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Experiment snapshots serve Tuner.restore, which is not used: to do = planned - done.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # If one trial refuses the whole run, nobody reads the errors of the others.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Epochs report a few metrics, and the objective of the search may be another.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # With a searcher, Ray Tune starts one actor at a time by default.
    "TUNE_MAX_PENDING_TRIALS_PG": "16",
}

NODE_CHECK_S = 5.0  # between two checks that the Ray node of this process is alive
_ANSWER_S = 30.0  # for the answer to the last of these checks


def _refuse_small(needs: Sequence[Resources]) -> None:
    """Refuse needs that fit no node of the cluster, nor one that an autoscaler may add."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    possible_nodes = list(nodes)
    # No public interface lists the nodes of an autoscaler (Ray 2.59 and 2.60).
    if config := state.get_cluster_config():
        possible_nodes.extend(dict(group.resources) for group in config.node_group_configs)
    for need in needs:
        if any(map(need.fit_into, possible_nodes)):
            continue
        # The cluster may have only a head node without cores until its workers arrive.
        if not any(node.get("CPU") for node in nodes):
            echo("the Ray cluster has no worker node yet: waiting for one", err=True)
            return
        largest = max(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)))
        raise UserError(
            f"a trial needs {need}; the largest node of the Ray cluster has "
            f"{largest.get('CPU', 0):g} CPU cores and {largest.get('GPU', 0):g} GPUs: change "
            "network.threads, gpus or `address`"
        )


@contextlib.contextmanager
def ray_session(
    address: str | None,
    needs: Sequence[Resources] = (),  # for which a cluster must have room
    variables: Mapping[str, str] = MappingProxyType({}),  # of the environment of trials
) -> Iterator[None]:
    """Connect to a cluster or start Ray here; leave a Ray running that is already connected."""
    os.environ.update(_QUIET)
    logging.getLogger("ray").setLevel(logging.ERROR)
    # The error of a trial is one line at the end; its traceback is in a file.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # A cluster without protection is worth a warning; a Ray that starts here always has a token. No
    # public logger has only this message (Ray 2.59 and 2.60).
    level = logging.WARNING if address else logging.ERROR
    logging.getLogger("ray._private.authentication").setLevel(level)
    is_own = not ray.is_initialized()
    if is_own:
        _connect(address, variables)
    elif address is not None or variables:
        raise UserError(
            "Ray is already running in this process, so neither `address` nor variables of the "
            "environment of trials can be set; call `ray.shutdown()` first"
        )
    try:
        _refuse_small(needs)
        with _watched_node():
            yield
    except RayTaskError:  # an error of a task's own code
        raise
    except RayError as error:
        reason = find_cause(error) or type(error).__name__
        raise UserError(
            f"Ray failed ({reason}); no finished trial is lost: run the same command again"
        ) from None
    finally:
        if is_own:
            report_progress("stopping Ray")
            ray.shutdown()


def _connect(address: str | None, variables: Mapping[str, str]) -> None:
    if address is not None:
        refuse_unreachable(address)
    # A submitted job has its own runtime environment, with which another would conflict.
    is_submitted = "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    runtime = {"env_vars": variables} if variables and not is_submitted else None
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    step, failure, advice = "starting Ray", "Ray does not start here", ""
    if address:
        step, failure = f"connecting to Ray at {address}", f"no Ray cluster at `address` {address}"
        advice = f"; {OTHER}"
    report_progress(step, is_urgent=True)
    try:
        with contextlib.nullcontext() if address else _protected():
            ray.init(
                # Without an address Ray would join any cluster on this machine.
                address=address or "local",
                num_cpus=None if address else count_cores(),
                log_to_driver=False,
                include_dashboard=None if address else False,
                runtime_env=runtime,
                logging_level=logging.ERROR,
            )
    except Exception as error:  # Ray raises a plain one if a process of it dies
        reason = find_cause(error) or type(error).__name__
        raise UserError(f"{failure}: {reason}{advice}") from None
    if threading.current_thread() is threading.main_thread():  # others cannot set handlers
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray replaced them


@contextlib.contextmanager
def _protected() -> Iterator[None]:
    """Protect the ports and the token of a Ray that starts in the block from others."""
    folder = Path.home() / ".ray"
    with contextlib.suppress(OSError):
        # Ray creates a token that everybody can read.
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "auth_token").chmod(0o600)
    switch = ray_constants.ENABLE_RAY_CLUSTER
    # This switch keeps Ray on the loopback interface, as on macOS and Windows. No option does (Ray
    # 2.59 and 2.60): Ray replaces a loopback address by that of the network.
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = switch


@contextlib.contextmanager
def _watched_node() -> Iterator[None]:
    """Raise UserError if the Ray node of this process dies, since Ray would wait forever.

    Outside of the main thread, which alone receives signals, the loss is only reported.
    """
    node_id = ray.get_runtime_context().get_node_id()
    main, is_main = threading.main_thread(), threading.current_thread() is threading.main_thread()
    is_over, is_lost = threading.Event(), threading.Event()
    message = (
        "the Ray node of this machine died, or lacked the memory or CPU time to respond; no "
        "finished trial is lost: run the same command again"
    )

    def watch() -> None:
        while not is_over.wait(NODE_CHECK_S) and not is_lost.is_set():
            # If the cluster does not respond, Ray decides whether it is lost.
            with contextlib.suppress(Exception):
                if any(node["NodeID"] == node_id and not node["Alive"] for node in ray.nodes()):
                    is_lost.set()
        if is_over.is_set():
            return
        if is_main:
            # Ray lets no exception through but that of an interrupt.
            signal.pthread_kill(main.ident or 0, signal.SIGINT)
        else:
            echo(message, err=True)

    watcher = threading.Thread(target=watch, daemon=True, name="tune-calib node")
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        if is_lost.is_set():
            raise UserError(message) from None
        raise
    finally:
        is_over.set()
        # Ray ends a process that asks it for its nodes during a shutdown. A busy machine answers
        # late, and a dead cluster may never answer.
        watcher.join(timeout=_ANSWER_S)
