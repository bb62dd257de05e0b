"""Running Ray trials: one local or remote Ray, reused actors, no logger files, no console spam."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune

from tune_calib.errors import UserError
from tune_calib.tuning.plan import RayTrial
from tune_calib.tuning.progress import Progress
from tune_calib.tuning.record import Run

_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Experiment snapshots serve Tuner.restore, which is not used: to do = planned - done.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
}

MAX_FAILURES = 3
"""How often a Ray trial is begun again after its worker or node died; it goes on from its own
checkpoint. Ray does not count preemptions."""


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


@contextlib.contextmanager
def ray_session(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start a Ray of this machine's cores that ends with the block.

    Args:
        address: of a running cluster (``auto`` finds it), or None.

    Raises:
        UserError: there is no cluster at the address.
    """
    os.environ.update(_QUIET)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"no Ray cluster at --address {address}: {reason}") from None
    try:
        yield
    finally:
        ray.shutdown()


def run_wave(
    title: str,
    kind: type[tune.Trainable],
    trials: Sequence[RayTrial],
    run: Run,
    resources: Resources,
    **extra: Any,
) -> list[str]:
    """Run Ray trials of one kind to their end.

    Args:
        title: shown with the progress.
        kind: their Trainable.
        trials: what to run.
        run: the circumstances.
        resources: of each.
        extra: further entries of every configuration.

    Returns:
        One line for each trial that crashed.
    """
    if not trials:
        return []
    work = [{**trial.config(), "name": trial.name} for trial in trials]
    shared = {"run": run.plain(), **extra}
    with Progress(title, len(work)) as progress, tempfile.TemporaryDirectory() as scratch:
        tuner = tune.Tuner(
            tune.with_resources(kind, {"cpu": resources.cpus, "gpu": resources.gpus}),
            param_space={**shared, "work": tune.grid_search(work)},
            tune_config=tune.TuneConfig(
                reuse_actors=True, trial_dirname_creator=lambda trial: trial.trial_id
            ),
            run_config=tune.RunConfig(
                name="wave",
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
    return [_first_line(error) for error in results.errors]


def _first_line(error: BaseException) -> str:
    """What a trial died of: the last line of the worker's traceback says it."""
    return str(error).strip().splitlines()[-1]
