"""Learning rate of every batch of a training."""

import math

from tune_calib.spec.slots.network import NetworkSlot

# Of torch's OneCycleLR: where it starts, and what it ends at.
_ONE_CYCLE_START, _ONE_CYCLE_END = 1 / 25, 1 / 250_000


def learning_rate(slot: NetworkSlot, epoch: int, batch: int = 0, batches: int = 1) -> float:
    """Return the learning rate of a batch of an epoch, both 0-based."""
    progress = (epoch + batch / batches) / slot.epochs
    # Of the middle of a batch, so that no batch is trained with a rate of 0.
    rise = (progress + 0.5 / (batches * slot.epochs)) / slot.warmup if slot.warmup else 1.0
    fall = (progress - slot.warmup) / (1 - slot.warmup)
    if slot.schedule == "one_cycle":
        if rise < 1:
            return slot.lr * _between(_ONE_CYCLE_START, 1.0, rise)
        return slot.lr * _between(1.0, _ONE_CYCLE_END, max(0.0, fall))
    rise = min(1.0, rise)
    if slot.schedule == "cosine":
        return slot.lr * rise * _between(1.0, 0.0, max(0.0, fall))
    # Not one epoch early, as in programs that step their schedule at the start of an epoch: 3/7
    # of 350 epochs is before the 151st. Rounded, since a product may miss it by its last bit.
    passed = sum(round(m * slot.epochs) <= epoch for m in slot.milestones)
    return slot.lr * slot.lr_decay**passed * rise


def _between(start: float, end: float, share: float) -> float:
    """Follow half a cosine from start (share 0) to end (share 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
