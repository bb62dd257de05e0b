"""Records of checks, the networks that they use, and self-checks of captured steps on a GPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tune_calib.data.base import Split
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.execution import first_line
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.machine import refuse_slow
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.self_check import Proven, SelfCheck
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.methods._base import Batch, NetworkContext, NetworkMethod
from tune_calib.models.network import Network, declare_stages
from tune_calib.spec.methods import METHODS, MethodInfo, Params
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

CPU = torch.device("cpu")
# Wider than the 100 classes of a check: BalCal needs as many features as classes.
SAMPLES, WIDTH = 12, 128  # of the toy network
NETWORK = {"backbone": "small_cnn", "epochs": 1, "augment": "none"}
HEAD = {"epochs": 3, "augment": "none"}
FEW = {"train_fraction": 0.3}
HEADS = 8  # in the batch whose captured step is checked


class FailedCheckError(AssertionError):
    """A method fails a check."""


class NotApplicableError(Exception):
    """A check does not apply to a method."""


def require(condition: object, complaint: str) -> None:
    if not condition:
        raise FailedCheckError(complaint)


class Bench:
    """Small real data and a network trained on them, created once for all checked methods."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @cached_property
    def few(self) -> Development:
        return load_development(TrialSpec.build(data=FEW, network={}).data, None)

    @cached_property
    def bank(self) -> FeatureBank:
        spec = TrialSpec.build(network=NETWORK, head={"method": "retrain", **HEAD})
        development = load_development(spec.data, None)
        run = NetworkTraining(spec, self.store, development, CPU)
        while run.step() is not None:
            pass
        run.close()
        key, splits = bank_key(spec, spec.head), lambda: (development, load_test(spec.data, None))
        return ensure_bank(FeatureBank, spec, key, self.store, splits, CPU)


Run = Callable[[MethodInfo, Bench], None]


@dataclass(frozen=True)
class Check:
    name: str
    rule: str
    # Raises ``FailedCheckError`` if a method breaks the rule and ``NotApplicableError`` if the rule
    # does not apply. Any other exception is an error of the method.
    run: Run


CHECKS: dict[str, list[Check]] = {"any": [], "network": [], "head": [], "posthoc": []}
"""The checks of all methods, and those of each kind."""


def check(kind: str, name: str, rule: str) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        CHECKS[kind].append(Check(name, rule, run))
        return run

    return add


def toy_network(classes: int) -> Network:
    """Build two small stages and a linear head, without normalisation, which couples samples."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, WIDTH, 3))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Softplus())
    backbone = nn.Sequential(body, pool)
    declare_stages(backbone, list)
    return Network(backbone, WIDTH, classes)


def toy_method(
    info: MethodInfo,
    network: Network,
    classes: int,
    dtype: torch.dtype = torch.float32,
    epochs: int = 4,
    params: Params | None = None,
) -> NetworkMethod:
    context = NetworkContext(classes, WIDTH, SAMPLES, epochs, seed=0)
    method: NetworkMethod = info.implementation(params or info.params(), context)
    method.adapt(network)
    network.to(dtype)
    method.to(dtype)
    method.begin_epoch(0, torch.Generator().manual_seed(1))
    method.drawn = method.draw(SAMPLES)
    return method


def toy_batch(
    classes: int, dtype: torch.dtype = torch.float32, order: Tensor | None = None
) -> Batch:
    chance = torch.Generator().manual_seed(2)
    # Drawn in double precision, so that batches of both types have the same numbers.
    images = torch.randn(SAMPLES, 1, 6, 6, generator=chance, dtype=torch.float64).to(dtype)
    order = torch.arange(SAMPLES) if order is None else order
    return Batch(images[order], order % classes, order)


def build_trainer(spec: TrialSpec, device: torch.device, steps: int) -> NetworkTrainer:
    info = spec.data.info
    shape = (spec.network.batch_size * steps, info.channels, info.size, info.size)
    images = torch.randint(256, shape, dtype=torch.uint8)
    indices = torch.arange(len(images))
    train = Split(images, indices % info.classes, indices)
    few = train.take(indices[:1])
    return NetworkTrainer(spec, Development(train, few, few), device)


def check_methods(
    backbone: str, precision: str, batch_size: int, bench: Bench, device: torch.device
) -> Iterator[tuple[str, SelfCheck]]:
    data, network = {"dataset": "cifar100"}, {"backbone": backbone, "precision": precision}
    # Before the first check, so that a wrong name is no refusal of each method.
    refuse_slow(TrialSpec.build(data=data, network=network).network.precision, device)
    for name in METHODS:
        info = METHODS[name]
        if info.kind == "posthoc" or not info.implementation.is_capturable:
            continue
        settings = {"method": name, "batch_size": batch_size, "epochs": 1}
        trainer: NetworkTrainer | HeadBatchTrainer
        try:
            if info.kind == "network":
                spec = TrialSpec.build(data=data, network={**network, **settings})
                trainer = build_trainer(spec, device, steps=1)
            else:
                slots = [HeadSlot.build(**HEAD | settings, seed=seed) for seed in range(HEADS)]
                trainer = HeadBatchTrainer(slots, bench.bank, 0, device)
            executor = trainer.executor
            assert isinstance(executor, Proven)
            executor.reads_cache = False
            next(trainer)
        except (RuntimeError, UserError) as error:
            yield name, SelfCheck(first_line(error))
        else:
            assert executor.check is not None
            yield name, executor.check
