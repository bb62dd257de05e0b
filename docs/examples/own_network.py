"""Train a network in plain torch, calibrate it, and use the result as one module."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy

import tune_calib
from tune_calib.spec.datasets import DATASETS

OUT = Path("runs/own-network")
MEAN, STD = 0.5, 0.5


def make() -> nn.Module:
    """Build the network, whose last layer is linear."""
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    pooling = [nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolutions, *pooling, nn.Linear(256, 10))


def train(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Train until the network fits all its training images."""
    torch.set_num_threads(1)  # more would only wait for each other
    torch.manual_seed(0)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(40):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    return network


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)  # an export replaces no file
    OUT.mkdir(parents=True)
    digits = DATASETS["digits"].load(None)
    network = train((digits.train.images / 255 - MEAN) / STD, digits.train.labels)
    save_file(network.state_dict(), OUT / "weights.safetensors")

    comparison = tune_calib.compare(
        ["ce", "temperature", "retrain+temperature"],
        backbone=f"{__file__}:make",
        weights=OUT / "weights.safetensors",
        norm=[[MEAN], [STD]],
        holdout="test",  # the network has seen all images of the training part
        head_epochs=5,
        address="none",
        out=OUT / "comparison",
    )
    columns = ["test/accuracy", "test/ece", "test/nll"]
    print(comparison.rows.set_index("rung_label")[columns].round(4))

    exported = OUT / "calibrated.safetensors"
    command = [sys.executable, "-m", "tune_calib.cli", "export", f"{OUT}/comparison", str(exported)]
    subprocess.run([*command, "--best", "nll", "--plugin", __file__], check=True)
    calibrated = tune_calib.load_calibrated(exported, plugin=__file__)
    print("probability of the predicted class:")
    print(calibrated(digits.test.images[:5]).amax(dim=1).round(decimals=3))
