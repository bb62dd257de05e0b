"""Running Ray trials: one local or remote Ray, reused actors, no logger files, no console spam."""

import contextlib
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import ray
from ray import tune
from ray._private import ray_constants
from ray._private.state import state
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.paths import parse_path
from tune_calib.progress import ProgressEvent, report_progress
from tune_calib.results.folders import refuse_moved
from tune_calib.tuning.loggers.follow import report_network
from tune_calib.tuning.ray import board
from tune_calib.tuning.ray.executor import (
    PART,
    Feed,
    Halving,
    Resources,
    keep_tracebacks,
    refuse_unreachable,
)
from tune_calib.tuning.ray.pool import MAX_FAILURES, Pool, raise_refused
from tune_calib.tuning.ray.progress import begun, crashed, ended, statuses_of
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.stop import STOP_SIGNALS
from tune_calib.tuning.ray.trainables import PlanTrainable

_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Experiment snapshots serve Tuner.restore, which is not used: to do = planned - done.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Where one trial refuses for all, nobody asks what the others died of meanwhile.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Epochs report a few metrics, and what is searched for may be another.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Behind a searcher Ray Tune starts one actor at a time unless it is told.
    "TUNE_MAX_PENDING_TRIALS_PG": "16",
}

NODE_CHECK_S = 5.0
"""Seconds between two checks that the Ray node of this process is alive."""


def placement(resources: Resources) -> tune.PlacementGroupFactory:
    """What Ray is asked for."""
    return tune.PlacementGroupFactory([{"CPU": resources.cpus, "GPU": resources.gpus}])


def _refuse_there(needs: Sequence[Resources]) -> None:
    """Refuse what no node of the cluster can give; those that an autoscaler adds count."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # Nothing public says what an autoscaler may add (Ray 2.59 and 2.60).
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
        refuse_unreachable(address)
    # A submitted job has a runtime environment of its own, with which another would clash.
    given = {**(environment if address else {}), **everywhere}
    is_given = given and "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    report_progress(f"connecting to Ray at {address}" if address else "starting Ray", at_once=True)
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
        report_progress("stopping Ray")
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
    # By this switch Ray stays on the loopback interface, as it does on macOS and Windows. No option
    # does it (Ray 2.59 and 2.60): a loopback address is turned into that of the network.
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


class _Fed(Searcher):
    """A feed as Ray Tune takes it."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Whoever feeds knows what is searched for, and where."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """The next Ray trial."""
        return self._feed.suggest(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on how it ended."""
        self._feed.on_trial_complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: to do = planned - done."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: to do = planned - done."""


class _Watcher(tune.Callback):
    """Tells screen and loggers what happens, and ends a run whose folder was moved."""

    def __init__(self, run: Provenance) -> None:
        self.run, self._last = run, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its callbacks for a restore, which is not used."""
        return {}

    def on_step_begin(self, iteration: int, trials: Any, **_: Any) -> None:
        """ExtraTrial at the folder once a second: Ray steps more often."""
        if time.monotonic() - self._last >= 1:
            refuse_moved(parse_path(self.run.out), self.run.sweep)
            self._last = time.monotonic()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """A worker takes it up."""
        begun(trial.config["work"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        """It did a step."""
        report_network(trial.config["work"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """It ended by itself, or a scheduler ended it."""
        ended(trial.config["work"], statuses_of(trial.config["work"], trial.last_result))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """It crashed."""
        crashed(trial.config["work"])


class RayExecutor:
    """Carries trials out on the Ray that this process is connected to."""

    def run(
        self,
        feed: Feed,
        total: int,
        provenance: Provenance,
        gpus: float,
        at_once: int | None = None,
        halving: Halving | None = None,
    ) -> list[Exception]:
        """As ``Executor.run``."""
        report_progress("starting workers")
        kind = tune.with_resources(
            PlanTrainable, lambda config: placement(Resources(config["work"]["threads"], gpus))
        )
        scheduler = None if halving is None else _asha(halving)
        return fit(
            total, kind, provenance, feed, scheduler=scheduler, max_concurrent_trials=at_once
        )

    def pool(self, size: int, resources: Resources, provenance: Provenance) -> Pool:
        """As ``Executor.pool``."""
        report_progress("starting workers")
        return Pool(size, resources, provenance)

    def told(self, board_name: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
        """As ``Executor.told``."""
        return board.told(board_name, names)

    def forget(self, board_name: str) -> None:
        """As ``Executor.forget``: others use the cluster too."""
        board.clear(board_name)


def _asha(halving: Halving) -> ASHAScheduler:
    # One more than there are: the step behind the last epoch evaluates and writes the row.
    return ASHAScheduler(
        time_attr="epoch",
        metric=halving.column,
        mode=halving.mode,
        max_t=halving.epochs + 1,
        grace_period=1,
        reduction_factor=3,
    )


def fit(total: int, kind: Any, run: Provenance, feed: Feed, **tuning: Any) -> list[Exception]:
    """Run Ray trials with reused actors.

    Args:
        total: number of Ray trials, at most.
        kind: their Trainable, with its resources.
        run: what its rows say of where they are from; of a folder that stays where it is.
        feed: gives the configurations.
        tuning: further settings of ``TuneConfig``: scheduler, how many at once.

    Returns:
        What Ray trials died of.

    Raises:
        RefusedError: one of them did, for all, or the folder was moved.
    """
    errors: list[Exception] = []
    search_alg = _Fed(feed)
    for start in range(0, total, PART):
        part = min(PART, total - start)
        results = _tuned(kind, run, search_alg, num_samples=part, **tuning)
        errors += results.errors
        if len(results) < part:
            break
    for error in errors:
        raise_refused(error)
    keep_tracebacks(errors, run.out)
    return errors


def _tuned(kind: Any, run: Provenance, search_alg: Searcher, **tuning: Any) -> tune.ResultGrid:
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
                callbacks=[_Watcher(run)],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        return tuner.fit()
