"""Parts of the training loop: learning rates, batches, and the time of each phase."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tune_calib.data.augment import crop_flip, draw_views
from tune_calib.data.base import Images
from tune_calib.spec.slots.network import NetworkSlot


@dataclass
class Stopwatch:
    """Seconds of each phase of an epoch; a GPU is synchronised at both ends of a phase."""

    seconds: dict[str, float] = field(default_factory=dict)
    is_on: bool = True  # False measures nothing and does not synchronise

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if not self.is_on:
            yield
            return
        started = self._now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - started

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


NO_WATCH = Stopwatch(is_on=False)


def batches_of(
    images: Images,
    order: Sequence[Tensor],
    padding: int,
    flip: bool,
    chance: torch.Generator,
    spare: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the positions of each batch, given by ``order``, and its augmented raw images."""
    # For the whole epoch at once, so that no batch waits for its draws on a GPU.
    draws = draw_views([len(batch) for batch in order], padding, flip, chance, spare)
    draws = draws.to(order[0].device)
    first = 0
    raw: Iterator[Tensor] = map(images.__getitem__, order)
    if not isinstance(images, Tensor):
        raw = images.batches(order)  # read ahead for a GPU
    for batch, raw_images in zip(order, raw, strict=True):
        last = first + len(batch)
        yield batch, crop_flip(raw_images, draws.part(first, last))
        first = last


_ONE_CYCLE_START, _ONE_CYCLE_END = 1 / 25, 1 / 250_000  # as in torch's OneCycleLR


def learning_rate(slot: NetworkSlot, epoch: int, batch: int = 0, batches: int = 1) -> float:
    """Return the learning rate of a batch in an epoch, both 0-based."""
    progress = (epoch + batch / batches) / slot.epochs
    # At the middle of a batch, so that no batch is trained with a learning rate of 0.
    rise = (progress + 0.5 / (batches * slot.epochs)) / slot.warmup if slot.warmup else 1.0
    fall = (progress - slot.warmup) / (1 - slot.warmup)
    if slot.schedule == "one_cycle":
        if rise < 1:
            return slot.lr * _between(_ONE_CYCLE_START, 1.0, rise)
        return slot.lr * _between(1.0, _ONE_CYCLE_END, max(0.0, fall))
    rise = min(1.0, rise)
    if slot.schedule == "cosine":
        return slot.lr * rise * _between(1.0, 0.0, max(0.0, fall))
    # Unlike programs that step their schedule at the start of an epoch, drops do not come one epoch
    # early: 3/7 of 350 epochs is before the 151st. Rounded, since a product may be off by one bit.
    passed = sum(round(m * slot.epochs) <= epoch for m in slot.milestones)
    return slot.lr * slot.lr_decay**passed * rise


def _between(start: float, end: float, share: float) -> float:
    """Interpolate by half a cosine from start (share 0) to end (share 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
