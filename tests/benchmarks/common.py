"""What the benchmarks share: a trained network of a given size, its bank, a clock."""

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

CPU = torch.device("cpu")
CORES = os.cpu_count() or 1
CIFAR10_ROOT = Path(__file__).parents[3] / "shared" / "data"
"""The real CIFAR-10 beside the checkout, where there is one."""


def head_slots(count: int, **head: object) -> list[HeadSlot]:
    """Heads of MaC-Cal that differ in their seeds."""
    slot = {"method": "mac_cal", **head}
    return [TrialSpec.build(network={}, head={**slot, "seed": s}).head for s in range(count)]  # type: ignore[misc]


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Median wall time of some work, after one run to warm up."""
    return sorted(_timed(work, repeats))[repeats // 2]


def fastest(work: Callable[[], object], repeats: int = 3) -> float:
    """Wall time of the fastest of some runs, after one to warm up."""
    return min(_timed(work, repeats))


def _timed(work: Callable[[], object], repeats: int) -> list[float]:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def bare_loop(store: Path, trials: Sequence[PlannedTrial]) -> int:
    """Train a head batch by the engine alone, from a bank that is there; returns its heads."""
    spec = trials[0].spec
    bank = _opened(store, bank_key(spec, spec.head).identity)
    slots = [trial.spec.head for trial in trials if trial.spec.head is not None]
    for _ in HeadBatchTrainer(slots, bank, spec.network.seed, CPU):
        pass
    return len(slots)


def steady_rate(out: Path) -> float:
    """Heads per second behind the first result file of a run, when every actor is warm."""
    written = sorted(
        (path.stat().st_mtime, read_table(out, "trials", path.stem).num_rows)
        for path in out.glob("trials/heads-*.parquet")
    )
    # By then every actor has carried out about as much as the first one.
    return sum(heads for _, heads in written[CORES:]) / (written[-1][0] - written[0][0])


@functools.cache
def _opened(store: Path, identity: str) -> DevelopmentBank:
    """A bank whose checksums are read once a process, as a warm actor does."""
    return DevelopmentBank(Store(store).folder("banks", identity))


def bare_loops(store: Path, batches: Sequence[Sequence[PlannedTrial]]) -> float:
    """Heads per second of the bare loop, a process a core: writes nothing, survives nothing."""
    context = multiprocessing.get_context("spawn")
    is_warm = context.Barrier(CORES + 1)
    with context.Pool(CORES, _warm_up, (is_warm, store, batches[0])) as pool:
        is_warm.wait()
        start = time.perf_counter()
        heads = sum(pool.starmap(bare_loop, [(store, batch) for batch in batches], chunksize=1))
        return heads / (time.perf_counter() - start)


def _warm_up(is_warm: Barrier, store: Path, batch: Sequence[PlannedTrial]) -> None:
    torch.set_num_threads(1)
    bare_loop(store, batch)
    is_warm.wait()
