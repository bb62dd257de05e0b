"""Heads a second for K to 1,024, on a CPU and on a GPU: python tests/benchmarks/heads.py

Needs torch alone: copy the folders tune_calib and tests to a machine with a GPU, and run it there
from their parent. It takes the steps of a head batch by the parts that know torch alone (the
stacked perceptrons, the stacked optimiser, the views); masks and the record of an epoch are left
out, and stand in ``floor``.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tune_calib.engine.head_steps import StackedOptimizer, Views
from tune_calib.models.heads import apply_stack, init_stack

SAMPLES, WIDTH, HIDDEN, CLASSES, BATCH = 2_560, 512, 128, 10, 128
PUBLISHED = 45_000 * 40  # samples that a head sees: CIFAR's train split, 40 epochs
HEAD_BATCHES = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class RandomSplit:
    """Features (N, D), logits (N, 0) and labels (N,)."""

    features: Tensor
    logits: Tensor
    labels: Tensor


def epoch_s(heads: int, device: torch.device, repeats: int = 3) -> float:
    """Seconds of the fastest of some epochs of a head batch, after one to warm up."""
    features, labels = torch.rand(SAMPLES, WIDTH), torch.randint(CLASSES, (SAMPLES,))
    split: Any = RandomSplit(features, features[:, :0], labels)
    bank: Any = SimpleNamespace(train=lambda _: split, views=1)
    views = Views(bank, device)
    parameters = init_stack((WIDTH, HIDDEN, CLASSES), range(heads), device)
    slot = SimpleNamespace(
        optimizer="sgd", momentum=0.9, clip_grad_norm=2.0, lr=0.01, weight_decay=5e-4
    )
    slots: Any = [slot] * heads
    optimizer = StackedOptimizer(slots, parameters)

    def epoch() -> None:
        order = torch.randperm(SAMPLES)
        for taken, targets in views.batches(views.view(0), order, BATCH):
            log_probs = apply_stack(parameters, taken, ["relu"]).log_softmax(-1)
            chosen = targets.expand(log_probs.shape[:2]).unsqueeze(2)
            loss = -log_probs.gather(2, chosen).squeeze(2).mean(1)
            loss.backward(torch.ones_like(loss))
            optimizer.step()
        next(iter(parameters.values())).flatten()[0].item()

    epoch()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        epoch()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print a row for each K."""
    is_there = torch.cuda.is_available()
    device = torch.device("cuda" if is_there else "cpu")
    name = torch.cuda.get_device_name() if is_there else "CPU, one thread"
    print(f"{WIDTH}-{HIDDEN}-{CLASSES} heads, batch {BATCH}, float32, on {name}")
    print("   K   ms/step   heads/s (40 epochs of 45,000)")
    for heads in HEAD_BATCHES:
        seconds = epoch_s(heads, device)
        step = seconds / (SAMPLES / BATCH)
        rate = heads / (seconds / SAMPLES * PUBLISHED)
        print(f"{heads:4d}   {1000 * step:7.2f}   {rate:8.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
