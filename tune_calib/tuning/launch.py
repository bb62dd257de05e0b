"""Running Ray trials: one local or remote Ray, reused actors, no logger files, no console spam."""

import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from tune_calib.errors import UserError
from tune_calib.names import CRASHES
from tune_calib.places import place
from tune_calib.results import atomic_write
from tune_calib.tuning.progress import Progress
from tune_calib.tuning.stop import STOP_SIGNALS

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


ALL_EPOCHS = 10**9
"""``epochs_per_step`` of heads that nobody watches."""


@dataclass(frozen=True)
class Resources:
    """What one Ray trial may use.

    Attributes:
        cpus: CPU cores, also its torch threads.
        gpus: 0, 1 or a fraction 1/k.
    """

    cpus: int
    gpus: float = 0.0

    def __post_init__(self) -> None:
        """Refuse fractions that leave a part of a GPU unused."""
        if self.gpus and not (1 / self.gpus).is_integer():
            raise UserError(f"gpus must be 0, 1 or 1/k, got {self.gpus}; 1/3 is 0.3333333333333333")

    def request(self) -> tune.PlacementGroupFactory:
        """What Ray is asked for."""
        return tune.PlacementGroupFactory([{"CPU": self.cpus, "GPU": self.gpus}])


@contextlib.contextmanager
def ray_session(
    address: str | None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Connect to a cluster, or start a Ray of this machine's cores that ends with the block.

    Args:
        address: of a running cluster (``auto`` finds it), or None.
        environment: variables that trials on a cluster are given.

    Raises:
        UserError: there is no cluster at the address.
    """
    os.environ.update(_QUIET)
    logging.getLogger("ray").setLevel(logging.ERROR)
    # What a trial died of is told in one line at the end; its traceback goes to a file.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # A submitted job has a runtime environment of its own, with which another would clash.
    is_given = environment and address and "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        ray.init(
            # Without an address Ray would join whatever cluster it finds on this machine.
            address=address or "local",
            log_to_driver=False,
            include_dashboard=None if address else False,
            runtime_env={"env_vars": dict(environment)} if is_given else None,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"no Ray cluster at --address {address}: {reason}") from None
    for number, handler in handlers.items():
        # Ray put its own in their place.
        signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def slots(resources: Resources) -> int:
    """How many Ray trials of some resources run side by side on the cluster.

    Raises:
        UserError: none does.
    """
    there = ray.cluster_resources()
    counts = [int(there.get("CPU", 0) // resources.cpus)]
    if resources.gpus:
        counts.append(int(there.get("GPU", 0) / resources.gpus))
    if min(counts) < 1:
        raise UserError(
            f"the Ray cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs; "
            f"a trial needs {resources.cpus} and {resources.gpus:g}: change --gpus or --address"
        )
    return min(counts)


def fit(
    title: str, total: int, kind: Any, out: str, search_alg: Searcher, **tuning: Any
) -> tune.ResultGrid:
    """Run one ``Tuner`` with reused actors, and show how it goes.

    Args:
        title: shown with the progress.
        total: number of its Ray trials, at most.
        kind: their Trainable, with its resources.
        out: folder of the results.
        search_alg: gives the configurations.
        tuning: further settings of ``TuneConfig``: scheduler, how many at once.
    """
    with Progress(title, total) as progress, tempfile.TemporaryDirectory() as scratch:
        tuner = tune.Tuner(
            kind,
            tune_config=tune.TuneConfig(
                search_alg=search_alg,
                num_samples=total,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
                **tuning,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                callbacks=[progress],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        results = tuner.fit()
    keep_tracebacks(results.errors, out)
    return results


def keep_tracebacks(errors: Sequence[BaseException], out: str) -> None:
    """Write what trials died of to ``CRASHES``; nothing is written if none did."""
    if errors:
        with contextlib.suppress(UserError):  # a full disk is told by the trials themselves
            atomic_write(place(out) / CRASHES, "\n\n".join(map(str, errors)).encode())


def first_line(error: BaseException) -> str:
    """What a trial died of: the last line of the worker's traceback says it."""
    return str(error).strip().splitlines()[-1]
