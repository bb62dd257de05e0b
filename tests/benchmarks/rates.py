"""(g) Heads per second of the same heads by several drivers, in one run: what a harness costs."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
from ray import tune

from tests.benchmarks.common import CORES, bare_loop, bare_loops, steady_rate
from tune_calib.spec.ladder import PlannedTrial, build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.ray.executor import RayExecutor
from tune_calib.tuning.ray.session import ray_session
from tune_calib.tuning.ray.trainables import JobTrainable
from tune_calib.tuning.work.execution import execute
from tune_calib.tuning.work.executor import ALL_EPOCHS
from tune_calib.tuning.work.jobs import HEAD_THREADS, Job, RemainingWork, make_plan
from tune_calib.tuning.work.provenance import Provenance

HEADS, FRESH_HEADS, ALONE_HEADS = 256, 8, 64
EPOCHS = 5
"""Of a head, which then takes about 0.1 s."""


def planned_heads(count: int) -> list[PlannedTrial]:
    """MaC-Cal heads of different seeds on one network."""
    settings = {
        "network": {"epochs": 2},
        "head": {"epochs": EPOCHS, "augment": "none"},
        "data": {"dataset": "digits"},
    }
    seeds = Seeds((0,), tuple(range(count)), is_paired=False)
    ladder = build_comparison(["mac_cal"], [{}])
    return expand(ladder, ResolvedRequest(settings, seeds).with_recipe())


def provenance(out: Path, store: Path) -> Provenance:
    return Provenance(str(out), str(store), sweep="bench", ladder="bench", is_search=True)


def as_tuner(out: Path, store: Path, head_batches: Sequence[Job], reuse: bool) -> float:
    """An ordinary Ray Tune run, as many trials at once as there are cores."""
    space = {
        "run": provenance(out, store).plain(),
        "epochs_per_step": ALL_EPOCHS,
        "job": tune.grid_search([head_batch.config() for head_batch in head_batches]),
    }
    with ray_session(None), tempfile.TemporaryDirectory() as scratch:
        results = tune.Tuner(
            tune.with_resources(JobTrainable, {"cpu": HEAD_THREADS}),
            param_space=space,
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=scratch, verbose=0),
        ).fit()
    if results.errors:
        raise RuntimeError(str(results.errors[0]))
    return steady_rate(out)


def as_executor(out: Path, store: Path, head_batches: Sequence[Job]) -> float:
    """The driver of ``tune-calib``."""
    with ray_session(None):
        errors = execute(
            "heads",
            RemainingWork(head_batches=tuple(head_batches)),
            RayExecutor(provenance(out, store)),
        )
    if errors:
        raise RuntimeError(errors[0])
    return steady_rate(out)


def as_optuna(store: Path, trials: Sequence[PlannedTrial], jobs: int) -> float:
    """Optuna's own loop in one process, which keeps its trials in memory only."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0.0, 1.0)
        bare_loop(store, [trials[trial.number % len(trials)]])
        return 0.0

    return _rate(lambda: study.optimize(objective, len(trials), n_jobs=jobs), len(trials))


def _rate(work: Callable[[], object], heads: int) -> float:
    start = time.perf_counter()
    work()
    return heads / (time.perf_counter() - start)


def main() -> None:
    """Print heads per second of each driver, and their ratios."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = planned_heads(HEADS)
    few = trials[:ALONE_HEADS]
    with tempfile.TemporaryDirectory() as folder:
        root, store = Path(folder), Path(folder) / "store"
        plan = make_plan(trials, set(), 1)
        ones = plan.head_batches
        with ray_session(None):
            errors = execute(
                "network and bank",
                RemainingWork(plan.networks, ones[:1]),
                RayExecutor(provenance(root / "bank", store)),
            )
        if errors:
            raise RuntimeError(errors[0])
        alone = _rate(lambda: [bare_loop(store, [trial]) for trial in few], len(few))
        print(f"MaC-Cal heads on digits, {EPOCHS} epochs: {1 / alone:.3f} s each alone", flush=True)
        fresh = as_tuner(root / "fresh", store, ones[:FRESH_HEADS], reuse=False)
        reused = as_tuner(root / "reused", store, ones[:ALONE_HEADS], reuse=True)
        peers = {
            "Ray Tune as it comes (a process each)": fresh,
            "Ray Tune, actor reuse": reused,
            "Optuna in one process": as_optuna(store, few, 1),
            "Optuna, a thread a core": as_optuna(store, few, CORES),
            "pool of processes": bare_loops(store, [[trial] for trial in few]),
        }
        best = max(peers.values())
        print(f"{'driver':38s}   K   heads/s   floor/own   over as it comes   over best peer")
        for name, rate in peers.items():
            print(f"{name:38s}   1 {rate:9.1f} {'':11s} {rate / fresh:14.0f} {rate / best:16.2f}")
        for size in (1, 8, 16, 32):
            head_batches = make_plan(trials if size > 1 else few, set(), size).head_batches
            batches = [head_batch.trials for head_batch in head_batches]
            before = bare_loops(store, batches)
            rate = as_executor(root / f"{size}", store, head_batches)
            bare = max(before, bare_loops(store, batches))
            print(f"{'bare loop, a process a core':38s} {size:3d} {bare:9.1f}")
            print(
                f"{'tune-calib':38s} {size:3d} {rate:9.1f} {bare / rate:11.2f} {rate / fresh:14.0f}"
                f" {rate / best:16.2f}",
                flush=True,
            )
