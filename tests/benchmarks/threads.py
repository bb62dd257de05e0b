"""What one thread a network costs, and what ``--portable`` costs: ratios of one run."""

import os
import subprocess
import sys
import time

import torch

from tests.benchmarks.common import CPU
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.determinism import PORTABLE
from tune_calib.engine.network import NetworkTrainer
from tune_calib.spec.trial import TrialSpec

SAMPLES, EPOCHS = 1000, 3
WAYS = {
    "1 thread": (1, 1, {}),
    "2 threads": (2, 1, {}),
    "1 thread each, two side by side": (1, 2, {}),
    "2 threads each, two side by side": (2, 2, {}),
    "1 thread, portable": (1, 1, PORTABLE),
}


def epoch_s(threads: int) -> float:
    """Fastest of some epochs of small_cnn on images of CIFAR's size, behind one to warm up."""
    torch.set_num_threads(threads)
    images = torch.randint(0, 256, (SAMPLES, 3, 32, 32), dtype=torch.uint8)
    split = Split(images, torch.arange(SAMPLES) % 10, torch.arange(SAMPLES))
    spec = TrialSpec.build(
        data={"dataset": "cifar10"}, network={"backbone": "small_cnn", "epochs": EPOCHS + 1}
    )
    trainer = NetworkTrainer(spec, Development(split, split.take(torch.arange(100)), split), CPU)
    times = []
    for _ in range(EPOCHS + 1):
        start = time.perf_counter()
        next(trainer)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def measured(threads: int, processes: int, environment: dict[str, str]) -> float:
    """Seconds of an epoch for each network, with some networks side by side."""
    command = [sys.executable, "-m", "tests.benchmarks.threads", str(threads)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
        for _ in range(processes)
    ]
    return max(float(process.communicate()[0]) for process in running) / processes


def main() -> None:
    """Print seconds a network in every way, as ratios to one thread alone."""
    measured(*WAYS["1 thread"])  # files read and processor awake
    seconds = {name: measured(*way) for name, way in WAYS.items()}
    for name, each in seconds.items():
        print(f"{name:34} {each / seconds['1 thread']:5.2f}")


if __name__ == "__main__":
    print(epoch_s(int(sys.argv[1])))
