"""The inner loop of a training: draws, batches, steps, and where their time goes.

Knows torch alone, so that it runs, and can be measured, where nothing else is installed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tune_calib.data.augment import crop_flip, draw_views


class Images(Protocol):
    """Raw images (N, C, H, W), uint8, of which batches are taken."""

    def __getitem__(self, positions: Tensor) -> Tensor:
        """Take the images at some positions."""


@dataclass
class Stopwatch:
    """Seconds of each phase of an epoch; a GPU is waited for at the ends of a phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block's time."""
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


class NoWatch:
    """Measures nothing, and waits for nobody."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Do the block."""
        del name
        return nullcontext()


NO_WATCH = NoWatch()


@dataclass(frozen=True)
class StepRule:
    """The rule by which a gradient becomes a step.

    Attributes:
        optimizer: of all parameters.
        clipped: parameters whose gradient is clipped together.
        clip: largest L2 norm of it, or None.
        is_summed: the loss is summed over the batch, not averaged.
    """

    optimizer: torch.optim.Optimizer
    clipped: Sequence[nn.Parameter]
    clip: float | None
    is_summed: bool


def backward_and_step(
    loss: Tensor, size: int, rule: StepRule, frozen: Sequence[nn.Parameter], watch: Any
) -> None:
    """Move the parameters, except frozen ones, along the gradient of a batch's mean loss."""
    with watch.phase("backward"):
        rule.optimizer.zero_grad(set_to_none=True)
        # Methods give means. The factor would be a learning rate but for the clip below, which acts
        # on the gradient of the sum in Mukhoti's program.
        (loss * size if rule.is_summed else loss).backward()
    with watch.phase("optimiser"):
        for parameter in frozen:
            # None and not zeros: the optimiser skips the tensor, decay and momentum included.
            parameter.grad = None
        if rule.clip is not None:
            nn.utils.clip_grad_norm_(rule.clipped, rule.clip)
        rule.optimizer.step()


def batches_of(
    images: Images,
    order: Sequence[Tensor],
    padding: int,
    flip: bool,
    chance: torch.Generator,
    spare: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield positions and augmented raw images of each batch, as ``draw_views`` draws them.

    All crops and flips of the epoch are drawn at once, so that a GPU gets them once. ``order`` has
    the positions of each batch, on the device of the images.
    """
    draws = draw_views([len(batch) for batch in order], padding, flip, chance, spare)
    draws = draws.to(order[0].device)
    first = 0
    for batch in order:
        last = first + len(batch)
        yield batch, crop_flip(images[batch], draws.part(first, last))
        first = last


def train_epoch(
    batches: Iterator[tuple[Tensor, Tensor]],
    step: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
    watch: Any,
) -> tuple[Tensor, Tensor, int]:
    """Take every batch through a step.

    Args:
        batches: as ``batches_of`` gives them.
        step: from the number of a batch, positions and images to its mean loss and the number of
            right samples, both on the device.
        watch: a stopwatch.

    Returns:
        Sum of the losses over samples, right samples (both on the device, so that nothing waits for
        a GPU at every batch), and samples.
    """
    total = correct = None
    seen = number = 0
    while True:
        with watch.phase("images"):
            taken = next(batches, None)
        if taken is None:
            break
        positions, images = taken
        loss, right = step(number, positions, images)
        size = len(positions)
        total = loss * size if total is None else total + loss * size
        correct = right if correct is None else correct + right
        seen, number = seen + size, number + 1
    if total is None or correct is None:
        raise ValueError("an epoch without a batch")
    return total, correct, seen
