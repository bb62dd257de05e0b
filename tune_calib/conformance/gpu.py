"""Self-checks of captured steps on a GPU, for all methods: whether ``auto`` uses them."""

from collections.abc import Iterator

import torch

from tune_calib.conformance.bench import HEAD, Bench
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.execution import first_line
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.machine import refuse_slow
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.self_check import Proven, SelfCheck
from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

HEADS = 8  # in the batch that is checked


def build_trainer(spec: TrialSpec, device: torch.device, steps: int) -> NetworkTrainer:
    info = spec.data.info
    shape = (spec.network.batch_size * steps, info.channels, info.size, info.size)
    images = torch.randint(256, shape, dtype=torch.uint8)
    indices = torch.arange(len(images))
    train = Split(images, indices % info.classes, indices)
    few = Split(images[:1], train.labels[:1], indices[:1])
    return NetworkTrainer(spec, Development(train, few, few), device)


def check_methods(
    backbone: str, precision: str, batch_size: int, bench: Bench, device: torch.device
) -> Iterator[tuple[str, SelfCheck]]:
    """Check all network and head methods anew; yield the name and the result.

    Networks have the shape of CIFAR-100; heads stand on the network of ``bench``.
    """
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
