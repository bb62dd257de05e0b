"""Features of the splits and of shift sets, made and written, against the bare forward passes."""

import tempfile
import time
from pathlib import Path

import torch

from tests.benchmarks.common import CPU
from tune_calib.data.augment import normalise
from tune_calib.data.base import Split
from tune_calib.data.corruptions.kinds import MAIN, SEVERITIES
from tune_calib.data.shift import open_set
from tune_calib.data.splits import Development
from tune_calib.engine.bank import BankKey, build_bank
from tune_calib.engine.extra import ExtraEvaluation
from tune_calib.engine.network import build
from tune_calib.engine.predict import EVALUATION_BATCH, TrainedNetwork
from tune_calib.files.store import Store
from tune_calib.spec.trial import TrialSpec

SAMPLES = 200  # of the test split, and so of every severity of every kind
BACKBONE = "resnet20_he"


def main() -> None:
    """Print seconds and ratio for all generated kinds and noise, and for each kind alone."""
    spec = TrialSpec.build(data={"dataset": "cifar10"}, network={"backbone": BACKBONE})
    info = spec.data.info
    images = torch.randint(0, 256, (SAMPLES, 3, 32, 32), dtype=torch.uint8)
    split = Split(images, torch.arange(SAMPLES) % 10, torch.arange(SAMPLES))
    network, method = build(spec, SAMPLES)
    trained = TrainedNetwork(network.eval(), method, {"accuracy": {}, "regime": {}})
    names = ["ood/noise", *(f"generated/{kind}" for kind in MAIN)]
    key = BankKey(network_id="0" * 16, views=0, bn_mode="eval")
    development = Development(split, split, split)

    @torch.no_grad()
    def forward(passes: int) -> float:
        started = time.perf_counter()
        for _ in range(passes):
            for chunk in split.images.split(EVALUATION_BATCH):
                trained.network(normalise(chunk, info))
        return time.perf_counter() - started

    forward(1)
    passes = {name: 1 if name.startswith("ood/") else len(SEVERITIES) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        store, made, bare = Store(Path(folder)), {}, {}
        started = time.perf_counter()
        build_bank(Path(folder) / "bank", key, trained, info, development, split)
        made["bank"], bare["bank"] = time.perf_counter() - started, forward(4)
        for name in names:
            shift = open_set(name, spec.data, None, None, lambda: split)
            started = time.perf_counter()
            evaluation = ExtraEvaluation(spec, store, None, CPU)
            evaluation._network = lambda: trained
            evaluation.ensure_shifted(shift)
            # Beside each other, so that what else the machine does is in both.
            made[name], bare[name] = time.perf_counter() - started, forward(passes[name])
    print(f"{SAMPLES} test images of CIFAR's size, {BACKBONE}, one thread, device {CPU}")
    for name in made:
        ratio = made[name] / bare[name]
        print(f"  {name:28} {made[name]:6.2f} s, bare {bare[name]:6.2f} s: {ratio:.2f}")
    total, least = sum(made.values()), sum(bare.values())
    print(f"all: {total:.1f} s over {least:.1f} s: {total / least:.2f} (aim: 1.15)")
