"""(c) Ray trials per second with and without actor reuse, for trials that do nothing."""

import os
import tempfile
import time

from ray import tune

from tune_calib.tuning.ray.session import ray_session

REUSED, FRESH = 100, 6


class Nothing(tune.Trainable):
    """A trial of one empty step, on a process that has torch loaded as a real one has."""

    def setup(self, config: dict[str, object]) -> None:
        import torch

        torch.set_num_threads(1)

    def step(self) -> dict[str, object]:
        return {"epoch": 1, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Ray asks for one at the end of every trial whose actor it wants to reuse."""

    def reset_config(self, new_config: dict[str, object]) -> bool:
        return True


def rate(trials: int, reuse: bool) -> float:
    """Trials per second, one at a time."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(Nothing, {"cpu": os.cpu_count() or 1}),
            param_space={"x": tune.grid_search(list(range(trials)))},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(
                storage_path=folder,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0),
            ),
        )
        start = time.perf_counter()
        results = tuner.fit()
        elapsed = time.perf_counter() - start
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    return trials / elapsed


def main() -> None:
    """Print both rates and their ratio."""
    with ray_session(None):
        rate(2, reuse=True)
        reused, fresh = rate(REUSED, reuse=True), rate(FRESH, reuse=False)
    print(f"reused actors {reused:.1f} trials/s ({REUSED} trials)")
    print(f"a process each {fresh:.2f} trials/s ({FRESH} trials)")
    print(f"ratio {reused / fresh:.0f}")
