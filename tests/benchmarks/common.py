"""What the benchmarks share: a trained network of a given size, its bank, a clock."""

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from tune_calib.data.base import Split
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import DevelopmentBank, FeatureBank, bank_key
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import TrainedNetwork
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

CPU = torch.device("cpu")
CORES = os.cpu_count() or 1
CIFAR10_ROOT = Path(__file__).parents[3] / "shared" / "data"
"""The real CIFAR-10 beside the checkout, where there is one."""


@dataclass(frozen=True)
class Setting:
    """A trained network with its images and its bank."""

    spec: TrialSpec
    trained: TrainedNetwork
    info: DatasetInfo
    development: Development
    test: Split
    bank: FeatureBank


def digits(folder: Path, views: int = 4, **head: object) -> Setting:
    """small_cnn on digits, one epoch: how well it is trained does not matter here."""
    spec = _spec("digits", views, head)
    splits = load_development(spec.data, None), load_test(spec.data, None)
    return _setting(folder, spec, *splits)


def cifar_sized(folder: Path, samples: int, views: int = 4) -> Setting:
    """small_cnn on random images of CIFAR's size, so that no data set is needed."""

    def split(count: int) -> Split:
        images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
        return Split(images, torch.arange(count) % 10, torch.arange(count))

    development = Development(split(samples), split(100), split(100))
    return _setting(folder, _spec("cifar10", views, {}), development, split(100))


def _spec(dataset: str, views: int, head: dict[str, object]) -> TrialSpec:
    slots = {"backbone": "small_cnn", "epochs": 1}
    given = {"method": "mac_cal", "views": views, **head}
    return TrialSpec.build(data={"dataset": dataset}, network=slots, head=given)


def _setting(folder: Path, spec: TrialSpec, development: Development, test: Split) -> Setting:
    store = Store(folder)
    run = NetworkTraining(spec, store, development, CPU)
    while run.step() is not None:
        pass
    run.close()
    key = bank_key(spec, spec.head)
    built = ensure_bank(FeatureBank, spec, key, store, lambda: (development, test), CPU)
    trained = load_network(spec, store, CPU)
    return Setting(spec, trained, DATASETS[spec.data.dataset], development, test, built)


def head_slots(count: int, **head: object) -> list[HeadSlot]:
    """Heads of MaC-Cal that differ in their seeds."""
    given = {"method": "mac_cal", **head}
    return [TrialSpec.build(network={}, head={**given, "seed": s}).head for s in range(count)]  # type: ignore[misc]


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
