"""(g) Heads per second of the same heads by several drivers, in one run: what a harness costs."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from ray import tune

from ablations._ladder import PlannedTrial, Seeds, expand, side_by_side
from tests.benchmarks.common import CPU
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.population import PopulationTrainer
from tune_calib.engine.store import Store
from tune_calib.registry import DATASETS
from tune_calib.tuning.launch import ALL_EPOCHS, HEAD_THREADS, Resources, ray_session, run_wave
from tune_calib.tuning.plan import RayTrial, make_plan
from tune_calib.tuning.pool import Pool
from tune_calib.tuning.record import Run
from tune_calib.tuning.trainables import HeadTrainable, NetworkTrainable

CORES = os.cpu_count() or 1
HEADS, FRESH_HEADS = 256, 8
EPOCHS = 5
"""Of a head, which then takes about 0.1 s."""
ONE = Resources(HEAD_THREADS)
EXTRA = {"epochs_per_step": ALL_EPOCHS}


def planned_heads(count: int) -> list[PlannedTrial]:
    """MaC-Cal heads of different seeds on one network."""
    given = {
        "network": {"epochs": 2},
        "head": {"epochs": EPOCHS, "augment": "none"},
        "data": {"dataset": "digits"},
    }
    seeds = Seeds((0,), tuple(range(count)), is_paired=False)
    ladder = side_by_side(["mac_cal"], [{}])
    return expand(ladder, DATASETS["digits"].cpu_defaults, given, seeds, False)


def groups(trials: Sequence[PlannedTrial], size: int) -> list[list[PlannedTrial]]:
    return [list(population.trials) for population in make_plan(trials, set(), size).populations]


def circumstances(out: Path, store: Path) -> Run:
    return Run(
        out=str(out),
        store=str(store),
        data_root=None,
        sweep="benchmark",
        ladder="benchmark",
        threads=HEAD_THREADS,
        is_search=True,
    )


def from_first_to_last(out: Path, populations: Sequence[RayTrial]) -> float:
    """Heads per second between the first result file and the last; starts do not count."""
    sizes = {population.name: len(population.trials) for population in populations}
    written = sorted((path.stat().st_mtime, path.stem) for path in out.glob("trials/heads-*"))
    heads = sum(sizes[name] for _, name in written[1:])
    return heads / (written[-1][0] - written[0][0])


def as_tuner(out: Path, store: Path, populations: list[RayTrial], reuse: bool) -> float:
    """An ordinary Ray Tune run, as many trials at once as there are cores."""
    work = tune.grid_search([population.config() for population in populations])
    with tempfile.TemporaryDirectory() as scratch:
        results = tune.Tuner(
            tune.with_resources(HeadTrainable, {"cpu": HEAD_THREADS}),
            param_space={"run": circumstances(out, store).plain(), **EXTRA, "work": work},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=scratch, verbose=0),
        ).fit()
    if results.errors:
        raise RuntimeError(str(results.errors[0]))
    return from_first_to_last(out, populations)


def as_pool(out: Path, store: Path, populations: list[RayTrial]) -> float:
    """The driver of ``tune-calib search``, without its sampler."""
    pool = Pool(HeadTrainable, CORES, ONE, circumstances(out, store), EXTRA)
    for population in populations:
        pool.submit(population)
    for _ in populations:
        _, error = pool.wait()
        if error:
            raise RuntimeError(error)
    return from_first_to_last(out, populations)


def bare(store: Path, trials: Sequence[PlannedTrial]) -> int:
    """Train heads by the engine alone; returns how many."""
    slots = [trial.spec.head for trial in trials if trial.spec.head is not None]
    key = bank_key(trials[0].spec, slots[0]).identity
    for _ in PopulationTrainer(slots, DevelopmentBank(Store(store).folder("banks", key)), 0, CPU):
        pass
    return len(slots)


def floor(store: Path, batches: Sequence[Sequence[PlannedTrial]]) -> float:
    """Heads per second of one core that does nothing else."""
    bare(store, batches[0])
    start = time.perf_counter()
    return sum(bare(store, batch) for batch in batches) / (time.perf_counter() - start)


def _one_thread() -> None:
    torch.set_num_threads(1)


def processes(store: Path, batches: Sequence[Sequence[PlannedTrial]]) -> float:
    """Heads per second of a bare pool of processes, which writes nothing and survives nothing."""
    with multiprocessing.get_context("spawn").Pool(CORES, _one_thread) as pool:
        pool.starmap(bare, [(store, batches[0])] * CORES)
        start = time.perf_counter()
        heads = sum(pool.starmap(bare, [(store, batch) for batch in batches], chunksize=1))
        return heads / (time.perf_counter() - start)


def main() -> None:
    """Print heads per second of each driver, and its ratio to Ray Tune as it comes."""
    trials = planned_heads(HEADS)
    with tempfile.TemporaryDirectory() as folder, ray_session(None):
        root, store = Path(folder), Path(folder) / "store"
        network = make_plan(trials, set()).networks
        errors = run_wave(
            "network", NetworkTrainable, network, circumstances(root / "n", store), ONE
        )
        if errors:
            raise RuntimeError(errors[0])
        ones = make_plan(trials, set(), 1).populations
        as_pool(root / "warm", store, list(ones[:2]))  # builds the bank
        single = floor(store, groups(trials[:32], 1))
        print(f"MaC-Cal heads on digits, {EPOCHS} epochs: {1 / single:.3f} s each alone")
        rows: list[tuple[str, int, float]] = [("bare loop, one core x cores", 1, single * CORES)]
        fresh = as_tuner(root / "fresh", store, list(ones[:FRESH_HEADS]), reuse=False)
        rows.append(("Ray Tune as it comes, a process each", 1, fresh))
        reused = as_tuner(root / "reused", store, list(ones[:64]), reuse=True)
        rows.append(("Ray Tune, actor reuse", 1, reused))
        rows.append(
            ("tune-calib, one head a trial", 1, as_pool(root / "1", store, list(ones[:64])))
        )
        rows.append(("pool of processes", 1, processes(store, groups(trials[:64], 1))))
        for size in (8, 16, 32):
            populations = list(make_plan(trials, set(), size).populations)
            batches = groups(trials, size)
            rows.append(("bare loop, one core x cores", size, floor(store, batches) * CORES))
            rows.append(("pool of processes", size, processes(store, batches)))
            rows.append(
                ("tune-calib, populations", size, as_pool(root / f"{size}", store, populations))
            )
        print(f"{'driver':38s}   K   heads/s   over Ray Tune as it comes")
        for name, size, rate in rows:
            print(f"{name:38s} {size:3d} {rate:9.1f} {rate / fresh:12.0f}", flush=True)
