"""Training, evaluation and bank of networks over loops that do nothing else, in fp32 and bf16."""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.common import CPU
from tune_calib.data.augment import normalise
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.bank import BankKey, build_bank
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.predict import EVALUATION_BATCH, TrainedNetwork, predict
from tune_calib.spec.slots.network import Precision
from tune_calib.spec.trial import TrialSpec

CLASSES, SIZE, BATCH = 10, 32, 128
STEPS = {"small_cnn": 24, "resnet18": 2}
ROUNDS = 2
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def images_of(count: int) -> Split:
    """Random images of CIFAR's size."""
    images = torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8)
    return Split(images, torch.arange(count) % CLASSES, torch.arange(count))


def trainer_of(backbone: str, precision: Precision, device: torch.device) -> NetworkTrainer:
    """A trainer with augmentation, whose select split is small beside its training split."""
    network = {"backbone": backbone, "precision": precision, "epochs": 1000, "lr": 0.001}
    spec = TrialSpec.build(data={"dataset": "cifar10"}, network=network)
    train, small = images_of(STEPS[backbone] * BATCH), images_of(16)
    return NetworkTrainer(spec, Development(train, small, small), device)


class BareLoop:
    """Forward, backward and step on one fixed batch, as short as it can be written."""

    def __init__(self, trainer: NetworkTrainer) -> None:
        network, device = trainer.network, trainer.device
        self.network = network
        raw = images_of(BATCH)
        images = normalise(raw.images.to(device), trainer.info)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = raw.labels.to(device)
        self.optimizer = torch.optim.SGD(
            network.parameters(), lr=0.001, momentum=0.9, fused=device.type == "cuda" or None
        )

    def epoch(self, steps: int) -> None:
        """Some steps."""
        self.network.train()
        for _ in range(steps):
            loss = F.cross_entropy(self.network(self.images).logits, self.labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()


@torch.no_grad()
def bare_forward(network: nn.Module, images: Tensor) -> None:
    """Forward passes over images that are ready."""
    network.eval()
    for batch in images.split(EVALUATION_BATCH):
        network(batch)


def in_turns(works: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Least seconds of each of some works, which take turns so that all meet the same load."""
    least: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:  # the first one warms up
                least[name] = min(least.get(name, 1e9), time.perf_counter() - start)
    return least


def measured(backbone: str, precision: Precision, device: torch.device) -> dict[str, float]:
    """Seconds of an epoch, a bare epoch, an evaluation, a bank and a bare forward pass."""
    trainer = trainer_of(backbone, precision, device)
    bare = BareLoop(trainer)
    train, none = trainer.train, images_of(4).to(device)
    ready = normalise(train.images, trainer.info)
    key = BankKey(network_id="0" * 16, views=0, bn_mode="eval")
    with tempfile.TemporaryDirectory() as folder:

        def build() -> None:
            parts = Development(train, none, none)
            trained = TrainedNetwork(
                trainer.network, trainer.method, {"accuracy": {}, "regime": {}}
            )
            build_bank(Path(folder) / "bank", key, trained, trainer.info, parts, None)

        return in_turns(
            {
                "epoch": lambda: next(trainer),
                "bare epoch": lambda: bare.epoch(STEPS[backbone]),
                "evaluation": lambda: predict(
                    trainer.method, trainer.network, train.images, trainer.info
                ),
                "bank": build,
                "bare forward": lambda: bare_forward(trainer.network, ready),
            }
        )


def main(device: torch.device = CPU) -> None:
    """Print a row for each backbone and precision."""
    rows = []
    for backbone, steps in STEPS.items():
        measurements = {p: measured(backbone, p, device) for p in PRECISIONS}
        for precision, s in measurements.items():
            rate = steps * BATCH / s["epoch"]
            faster = measurements["fp32"]["epoch"] / s["epoch"]
            ratios = (
                s["epoch"] / s["bare epoch"],
                s["evaluation"] / s["bare forward"],
                s["bank"] / s["bare forward"],
            )
            rows.append([backbone, precision, f"{rate:.0f}", *ratios, faster])
    print(f"{torch.get_num_threads()} threads, batch {BATCH}, crops and flips, {device}")
    heads = ["", "", "images/s", "epoch/bare", "evaluation/bare", "bank/bare", "over fp32"]
    print(tabulate(rows, heads, floatfmt=".2f"))


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]) if sys.argv[1:] else 1)
    main()
