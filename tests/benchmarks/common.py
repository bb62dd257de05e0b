"""What the benchmarks share: a trained network of a given size, its bank, a clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tune_calib.data.base import DatasetInfo, Split
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.runs import NetworkRun, TrainedNetwork, ensure_bank, load_network
from tune_calib.engine.store import Store
from tune_calib.registry import DATASETS
from tune_calib.spec import HeadSlot, TrialSpec

CPU = torch.device("cpu")


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
    run = NetworkRun(spec, store, development, CPU)
    while run.step() is not None:
        pass
    run.close()
    key = bank_key(spec, spec.head)
    built = ensure_bank(spec, key, store, lambda: (development, test), CPU)
    trained = load_network(spec, store, CPU)
    return Setting(spec, trained, DATASETS[spec.data.dataset], development, test, built)


def head_slots(count: int, **head: object) -> list[HeadSlot]:
    """Heads of MaC-Cal that differ in their seeds."""
    given = {"method": "mac_cal", **head}
    return [TrialSpec.build(network={}, head={**given, "seed": s}).head for s in range(count)]  # type: ignore[misc]


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Median wall time of some work, after one run to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]
