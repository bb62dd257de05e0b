"""bfloat16 against float32 over five seeds: accuracy and ECE on test, paired, and seconds.

python -m tests.benchmarks.precision [SEEDS]
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from scipy import stats
from tabulate import tabulate

from tests.benchmarks.common import CIFAR10_ROOT, CPU
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.predict import predict
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.settings import find_recipe, resolve_spec

SEEDS = 5
METRICS = ("accuracy", "ece", "nll")


def trained(dataset: str, precision: str, seed: int) -> dict[str, float]:
    """Metrics on test and CPU seconds of one network of the data set's ``quick``."""
    network: dict[str, Any] = {"precision": precision, "seed": seed}
    settings = {"data": {"dataset": dataset}, "network": network}
    spec = resolve_spec(settings, find_recipe(settings))
    splits = load_development(spec.data, CIFAR10_ROOT)
    trainer = NetworkTrainer(spec, splits, CPU)
    start = time.process_time()
    for _ in trainer:
        pass
    seconds = time.process_time() - start
    test = load_test(spec.data, CIFAR10_ROOT)
    logits = predict(trainer.method, trainer.network, test.images, trainer.info)[1].double()
    scores = evaluate(logits.unsqueeze(0), test.labels)
    return {**{name: float(scores[name]) for name in METRICS}, "seconds": seconds}


def main(dataset: str = "cifar10") -> None:
    """Print means, paired differences with 95 % intervals (Student), and the ratio of seconds."""
    seeds = range(int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else SEEDS)
    runs_by_precision = {p: [trained(dataset, p, seed) for seed in seeds] for p in ("fp32", "bf16")}
    rows = []
    for name in METRICS:
        full, low = (
            np.array([run[name] for run in runs_by_precision[p]]) for p in ("fp32", "bf16")
        )
        change = low - full
        interval = stats.ttest_rel(low, full).confidence_interval()
        rows.append([name, full.mean(), low.mean(), change.mean(), interval.low, interval.high])
    heads = ["test", "fp32", "bf16", "difference", "low", "high"]
    print(f"{dataset}, its quick network, {len(seeds)} seeds")
    print(tabulate(rows, heads, floatfmt=".4f"))
    spent = {p: sum(run["seconds"] for run in runs) for p, runs in runs_by_precision.items()}
    print(f"CPU seconds of fp32 over those of bf16: {spent['fp32'] / spent['bf16']:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
