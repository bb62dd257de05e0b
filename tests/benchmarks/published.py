"""(a) Head retraining as published, the backbone run at every epoch, against head batches."""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from tests.benchmarks.common import CPU, Setting, cifar_sized, digits
from tune_calib.data.augment import crop_flip, draw_views, normalise
from tune_calib.engine.bank import BankKey, FeatureBank, build_bank
from tune_calib.engine.head_batch import HeadBatchTrainer, head_batch_key
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.slots.head import HeadSlot

HEAD_SEEDS = 5
SAMPLES = 500


def as_published(setting: Setting, slot: HeadSlot) -> None:
    """One head, module and optimiser of its own, features computed anew at every epoch."""
    network = setting.trained.network.eval()
    info, train = setting.info, setting.development.train
    width, classes = network.width, info.classes
    sizes = (width, classes) if slot.params.shape == "linear" else (width, width // 4, classes)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    head = nn.Sequential(*[m for layer in layers for m in (layer, nn.ReLU())][:-1])
    optimizer = torch.optim.SGD(head.parameters(), lr=slot.lr, momentum=0.9, weight_decay=5e-4)
    chance = torch.Generator().manual_seed(slot.seed)
    for _ in range(slot.epochs):
        masks = [(torch.rand_like(layer.weight) < 0.5).float() for layer in layers]
        with torch.no_grad():
            for layer, mask in zip(layers, masks, strict=True):
                layer.weight.mul_(mask)
        for batch in torch.randperm(len(train)).split(slot.batch_size):
            draws = draw_views([len(batch)], info.padding, info.flip, chance)
            images = crop_flip(train.images[batch], draws)
            with torch.no_grad():
                features = network(normalise(images, info)).features
            optimizer.zero_grad()
            F.cross_entropy(head(features), train.labels[batch]).backward()
            for layer, mask in zip(layers, masks, strict=True):
                layer.weight.grad.mul_(mask)
            optimizer.step()


def ladder_heads() -> list[HeadSlot]:
    """The five head rungs of the ladder, for every head seed."""
    seeds = Seeds((0,), tuple(range(HEAD_SEEDS)), is_paired=False)
    planned = expand(LADDERS["mac_cal"], ResolvedRequest(seeds=seeds))
    return [trial.spec.head for trial in planned if trial.spec.head is not None]


def in_head_batches(setting: Setting, slots: list[HeadSlot], folder: Path) -> None:
    """The bank, built anew, and every head batch on it."""
    key = BankKey(**setting.bank.manifest["key"])
    trained = setting.trained
    splits = setting.development, setting.test
    build_bank(folder, key, trained, setting.info, *splits)
    groups: dict[str, list[HeadSlot]] = {}
    for slot in slots:
        groups.setdefault(head_batch_key(slot), []).append(slot)
    for group in groups.values():
        list(HeadBatchTrainer(group, FeatureBank(folder), 0, CPU))


def measure(name: str, setting: Setting, folder: Path) -> None:
    """Print the ratio of wall times."""
    slots = ladder_heads()
    start = time.perf_counter()
    for slot in slots:
        as_published(setting, slot)
    published = time.perf_counter() - start
    start = time.perf_counter()
    in_head_batches(setting, slots, folder)
    ours = time.perf_counter() - start
    print(f"{name}: {len(slots)} heads, {slots[0].epochs} epochs, {setting.bank.views} views")
    print(f"  as published {published:.1f} s, bank + head batches {ours:.2f} s, one thread each")
    print(f"  ratio {published / ours:.1f} (aim: 50)")


def main() -> None:
    """Measure on digits and on images of CIFAR's size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure("digits, 500 images", digits(folder / "a"), folder / "bank-a")
        sized = cifar_sized(folder / "b", SAMPLES)
        measure(f"32x32 colour, {SAMPLES} images", sized, folder / "bank-b")
