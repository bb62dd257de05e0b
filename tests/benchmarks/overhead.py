"""(e) Time of a training step of each network method against ce; peak memory of CPC."""

import multiprocessing
import time
from pathlib import Path

import torch
from tabulate import tabulate

from tests.benchmarks.common import CPU
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.methods._base import NetworkContext
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

BATCH, CLASSES, STEPS = 128, 10, 9
CPC_CLASSES, CPC_BATCH = 200, 64


def trainer_of(method: str, images: Split) -> NetworkTrainer:
    """A trainer of small_cnn in its first epoch."""
    spec = TrialSpec.build(data={"dataset": "cifar10"}, network={"method": method, "epochs": 30})
    trainer = NetworkTrainer(spec, Development(images, images, images), CPU)
    trainer.method.begin_epoch(0, torch.Generator().manual_seed(0))
    return trainer


def step_seconds(trainer: NetworkTrainer) -> float:
    """Wall time of one step, backward pass and optimiser included."""
    split = trainer.train
    inputs = {"positions": split.indices, "images": split.images, "lr": 0.1}
    for name, tensor in trainer.method.draw(BATCH).items():
        inputs[f"draw.{name}"] = tensor
    trainer.network.train()
    trainer.method.train()
    start = time.perf_counter()
    trainer.executor(inputs)
    return time.perf_counter() - start


def main() -> None:
    """Print the ratio of each method to ce; the two take turns, so that both meet the same load."""
    images = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8)
    split = Split(images, torch.arange(BATCH) % CLASSES, torch.arange(BATCH))
    rows = []
    for name in (name for name in METHODS if METHODS[name].kind == "network"):
        method, plain = trainer_of(name, split), trainer_of("ce", split)
        pairs = [(step_seconds(method), step_seconds(plain)) for _ in range(STEPS + 1)][1:]
        ratios = sorted(ours / ce for ours, ce in pairs)
        rows.append([name, ratios[STEPS // 2], ratios[0], ratios[-1]])
    heads = ["method", "step / step of ce", "least", "largest"]
    print(f"small_cnn, {BATCH} images of 3x32x32, {STEPS} steps in turns with ce, median")
    print(tabulate(sorted(rows, key=lambda row: row[1]), heads, floatfmt=".2f"))
    naive = 4 * CPC_BATCH * (CPC_CLASSES - 1) ** 2 / 2**20
    print(f"\nCPC at C = {CPC_CLASSES}, N = {CPC_BATCH}, forward and backward:")
    # In a process of its own: what an earlier part freed would serve this one unseen.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        added = pool.apply(cpc_mebibytes)
    print(f"{added:.0f} MiB at the peak; one tensor of all pairs has {naive:.0f} MiB")


def cpc_mebibytes() -> float:
    """Largest resident size during losses of CPC over that before (Linux only)."""
    context = NetworkContext(CPC_CLASSES, 512, 10_000, epochs=1, seed=0)
    method = METHODS["cpc"].implementation(METHODS["cpc"].params(), context)
    features, labels = torch.zeros(CPC_BATCH, 512), torch.arange(CPC_BATCH)

    def work(samples: int) -> None:
        logits = torch.randn(samples, CPC_CLASSES, requires_grad=True)
        targets = labels[:samples]
        method.loss(logits, targets, features[:samples], targets).backward()

    work(2)  # what torch allocates once and for all
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start_kib = resident("VmRSS")
    work(CPC_BATCH)
    return (resident("VmHWM") - start_kib) / 1024


def resident(field: str) -> int:
    """A resident size of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
