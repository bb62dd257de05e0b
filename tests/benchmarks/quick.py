"""What was tried to find ``quick``: python -m tests.benchmarks.quick DATASET FOLDER [MINUTES]

One network (seed 0, no label noise) for each candidate, judged on ``train`` and ``select`` alone.
Finished candidates stand in FOLDER/quick-DATASET.jsonl and are not run again; the table is printed.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from tests.benchmarks.common import CIFAR10_ROOT, CPU
from tune_calib.data.splits import load_development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.predict import predict
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.trial import TrialSpec

Candidate = dict[str, Any]
BASE: Candidate = {
    "schedule": "one_cycle", "warmup": 0.2, "augment": "none", "batch_size": 32, "lr": 0.05,
}  # fmt: skip
SGD_64 = {"batch_size": 64, "lr": 0.1}
ADAM = {"optimizer": "adam", "lr": 0.002, "weight_decay": 0.0}


def candidate(backbone: str, share: float, epochs: int, **network: Any) -> Candidate:
    """A candidate in bfloat16 (to find out; what is found is checked in float32 too)."""
    settings = {**BASE, "backbone": backbone, "epochs": epochs, "precision": "bf16", **network}
    return {"share": share, "network": settings}


CANDIDATES: dict[str, list[Candidate]] = {
    "cifar100": [
        candidate("small_vgg", 0.05, 16),
        candidate("small_vgg", 0.05, 16, precision="fp32"),
        candidate("small_vgg", 0.05, 12),
        candidate("small_vgg", 0.05, 10),
        candidate("small_vgg", 0.1, 12, **SGD_64),
        candidate("small_vgg", 0.05, 16, augment="standard"),
        candidate("small_cnn", 0.1, 20, batch_size=64, lr=0.2),
        candidate("small_cnn", 0.1, 30, **SGD_64),
        candidate("small_cnn", 0.05, 20, **ADAM),
        candidate("resnet8", 0.05, 16),
    ],
    "cifar10": [
        candidate("small_vgg", 0.05, 14),
        candidate("small_vgg", 0.05, 14, precision="fp32"),
        candidate("small_vgg", 0.05, 10),
        candidate("small_vgg", 0.1, 10),
        candidate("small_cnn", 0.05, 14),
        candidate("resnet8", 0.05, 14),
    ],
}


def tried(dataset: str, asked: Candidate) -> dict[str, Any]:
    """Train one candidate and judge it where it may be judged."""
    data = {"dataset": dataset, "train_fraction": asked["share"]}
    spec = TrialSpec.build(data=data, network=asked["network"])
    trainer = NetworkTrainer(spec, load_development(spec.data, CIFAR10_ROOT), CPU)
    started = time.process_time()
    for _ in trainer:
        pass
    seconds = time.process_time() - started
    values = {}
    for name, split in (("train", trainer.train), ("select", trainer.select)):
        logits = predict(trainer.method, trainer.network, split.images, trainer.info)[1].double()
        scores = evaluate(logits.unsqueeze(0), split.labels)
        values[name] = {key: float(value) for key, value in scores.items()}
    return {**asked, "cpu_s": seconds, "images": len(trainer.train), **values}


def rows(records: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Rows of the table, in percent."""
    for record in records:
        network, train, select = record["network"], record["train"], record["select"]
        how = f"{network.get('optimizer', 'sgd')} {network['lr']:g}, batch {network['batch_size']}"
        share = f"{record['share']:g} ({record['images']:,})"
        settings = [network["backbone"], share, network["epochs"], how]
        scores = [train["accuracy"], select["accuracy"], select["confidence_gap"], select["ece"]]
        way = [network["augment"], network["precision"], record["cpu_s"] / 60]
        yield [*settings, *way, *(100 * score for score in scores)]


HEADS = (
    "backbone", "share (images)", "epochs", "optimiser", "augmentation", "precision", "CPU min",
    "train acc. %", "select acc. %", "conf. - acc.", "ECE %",
)  # fmt: skip


def main() -> None:
    """Try what is not tried yet, within the minutes given, and print the table."""
    dataset, folder = sys.argv[1], Path(sys.argv[2])
    end = time.monotonic() + 60 * float(sys.argv[3] if sys.argv[3:] else 1e6)
    torch.set_num_threads(1)
    file = folder / f"quick-{dataset}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    tried_settings = [{"share": record["share"], "network": record["network"]} for record in done]
    for asked in CANDIDATES[dataset]:
        if asked not in tried_settings and time.monotonic() < end:
            done.append(tried(dataset, asked))
            with file.open("a") as lines:
                lines.write(json.dumps(done[-1]) + "\n")
    print(tabulate(list(rows(done)), HEADS, floatfmt=".1f", tablefmt="github"))


if __name__ == "__main__":
    main()
