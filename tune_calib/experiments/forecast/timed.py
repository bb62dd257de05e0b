"""What is timed now, on random numbers: a training step, an epoch of heads, an evaluation.

No file of a data set is read, and each is timed once, on as little as tells.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.augment import normalise
from tune_calib.data.base import Split
from tune_calib.data.splits import Sizes
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit
from tune_calib.engine.evaluate import SplitLogits, evaluate_one, fit_transform
from tune_calib.engine.network import build, predict
from tune_calib.engine.parts import in_parts
from tune_calib.engine.population import HEAD_THREADS, PopulationTrainer
from tune_calib.engine.precision import on_threads
from tune_calib.methods._base import Batch
from tune_calib.metrics.bootstrap import bootstrap, draw
from tune_calib.metrics.drawn_ood import drawn_detection
from tune_calib.metrics.shifted import drawn_under_corruption, under_corruption
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.spec.trial import TrialSpec

FIRST_BATCH = 4
"""Images of the first step; what a whole batch takes is reckoned from it where it is long."""

STEP_S = 0.4
"""Seconds of a step beyond which no larger batch is tried."""

HEAD_SAMPLES = 2048
"""Features of the epoch by which heads are timed; an epoch of more takes longer in proportion."""

JUDGED = 2500
"""Samples of the evaluation that is timed; one of more takes longer in proportion."""

DRAWS = 20, 100
"""Draws of the bootstraps by which one of more is reckoned."""


def batch_s(spec: TrialSpec, device: torch.device) -> tuple[float, float]:
    """Seconds of a training step of a network, and of one image in evaluation."""
    whole = spec.network.batch_size
    size = min(FIRST_BATCH, whole)
    step_s, image_s = _step_s(spec, size, device)
    if step_s < STEP_S and size < whole:
        size = min(whole, max(2 * size, int(size * STEP_S / max(step_s, 1e-6))))
        step_s, image_s = _step_s(spec, size, device)
    return step_s * whole / size, image_s


def _step_s(spec: TrialSpec, size: int, device: torch.device) -> tuple[float, float]:
    """As ``batch_s``, with a batch of some size; the first step warms up."""
    info, split = spec.data.info, _images(spec, size).to(device)
    network, method = build(spec, size)
    network, method = network.to(device), method.to(device)
    network.train()
    method.train()
    method.begin_epoch(0, _chance())

    def step() -> None:
        # By hand: an optimiser of torch loads its compiler first, which takes longer than this.
        images = normalise(split.images[:], info)
        method.step(network, Batch(images, split.labels, split.indices)).loss.backward()
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-1e-3)
                parameter.grad = None

    step()
    step_s = min(_seconds(step) for _ in range(2))
    return step_s, _seconds(lambda: predict(method, network, split, info)) / size


def _images(spec: TrialSpec, count: int) -> Split:
    info = spec.data.info
    side = info.stored or info.size
    places = torch.arange(count)
    pixels = torch.randint(256, (count, info.channels, side, side), generator=_chance())
    return Split(pixels.to(torch.uint8), places % info.classes, places)


def heads_epoch_s(
    spec: TrialSpec, slots: Sequence[HeadSlot], sizes: Sizes, device: torch.device
) -> float:
    """Seconds of an epoch of a population on the bank of a network."""
    timed, record = min(sizes.train, HEAD_SAMPLES), spec.data.import_record
    width = build(spec, sizes.train)[0].width if record is None else record.width
    bank = _RandomBank(timed, min(sizes.select, HEAD_SAMPLES), width, spec.data.info.classes)
    # At least one epoch behind the one that warms up.
    long = [slot.model_copy(update={"epochs": slot.epochs + 1}) for slot in slots]
    with on_threads(HEAD_THREADS):
        part = in_parts(long, bank)[0]
        trainer = PopulationTrainer(part, bank, 0, device)
        next(trainer)
        return _seconds(lambda: next(trainer)) * sizes.train / timed * len(long) / len(part)


class _RandomBank(DevelopmentBank):
    """Features that stand for those of a network that is not trained yet."""

    def __init__(self, samples: int, selected: int, width: int, classes: int) -> None:
        self.about = {"train_views": 1, "accuracy": {"train": 1.0, "select": 1.0}}
        chance = _chance()

        def draw(count: int) -> FeatureSplit:
            labels = torch.randint(classes, (count,), generator=chance)
            features = torch.rand(count, width, generator=chance)
            return FeatureSplit(features, torch.rand(count, classes, generator=chance), labels)

        self._train, self._select = draw(samples), draw(selected)
        self._head = torch.rand(classes, width, generator=chance), torch.zeros(classes)

    def train(self, view: int = 0) -> FeatureSplit:
        return self._train

    def select(self) -> FeatureSplit:
        return self._select

    def evaluated(self) -> dict[str, FeatureSplit]:
        return {"select": self._select}

    def own_head(self) -> tuple[Tensor, Tensor]:
        return self._head


def evaluation_s(classes: int, sizes: Sizes, is_search: bool) -> float:
    """Seconds in which all metrics of a trial are computed."""
    counts = {"select": sizes.select, "calib": sizes.calib}
    if not is_search:
        counts["test"] = sizes.test
    timed = {name: min(count, JUDGED) for name, count in counts.items()}
    logits = {name: _logits(count, classes) for name, count in timed.items()}
    seconds = _seconds(lambda: evaluate_one(logits, None))
    return seconds * sum(counts.values()) / sum(timed.values())


def fit_s(slot: PostHocSlot, classes: int, calib: int) -> float:
    """Seconds in which a post-hoc method is fitted."""
    timed = min(calib, JUDGED)
    return _seconds(lambda: fit_transform(slot, _logits(timed, classes))) * calib / timed


def shifted_s(classes: int, images: int, draws: int, is_foreign: bool) -> float:
    """Seconds in which a trial is judged on a part of a shift set, and on draws of it."""
    timed = min(images, JUDGED)
    split = _logits(timed, classes)
    logits = split.logits[0].double()
    seconds = _seconds(lambda: under_corruption(logits, split.labels))
    if draws:
        few = draw(timed, DRAWS[0], 0)
        drawn = _seconds(
            lambda: (
                drawn_detection(logits, logits, few, few)
                if is_foreign
                else drawn_under_corruption(logits, split.labels, few)
            )
        )
        seconds += drawn * draws / DRAWS[0]
    return seconds * images / timed


def intervals_s(classes: int, sizes: Sizes, draws: int) -> float:
    """Seconds of the bootstrap of a trial, which grow by the draw."""
    test, calib = (_logits(min(n, JUDGED), classes) for n in (sizes.test, sizes.calib))
    known = (calib.logits.double(), calib.labels)
    few, many = (
        _seconds(lambda: bootstrap(test.logits.double(), test.labels, count, calib=known))  # noqa: B023
        for count in DRAWS
    )
    growth = max(0.0, many - few) / (DRAWS[1] - DRAWS[0])
    return (few + growth * max(0, draws - DRAWS[0])) * sizes.test / len(test.labels)


def _logits(count: int, classes: int) -> SplitLogits:
    """Logits of an over-confident classifier."""
    chance = _chance()
    labels = torch.randint(classes, (count,), generator=chance)
    logits = torch.randn(1, count, classes, generator=chance)
    logits[0, torch.arange(count), labels] += 3
    return SplitLogits(2 * logits, labels)


def _chance() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - started
