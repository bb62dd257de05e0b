"""Time or count on random numbers; no file of a data set is read."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tune_calib.data.augment import normalise
from tune_calib.data.base import Split
from tune_calib.data.splits import Sizes
from tune_calib.engine.bank import FeatureSplit
from tune_calib.engine.evaluate import SplitLogits, evaluate_one, fit_transform
from tune_calib.engine.machine import on_threads
from tune_calib.engine.network import build, predict
from tune_calib.engine.population import HEAD_THREADS, PopulationTrainer, in_parts, tensors_of
from tune_calib.methods._base import Batch, HeadContext, NetworkMethod
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.models.network import Network
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.spec.trial import TrialSpec

FIRST_BATCH, STEP_S = 4, 0.4
"""Images of the first timed step, and seconds of a step beyond which no larger batch is tried."""

HEAD_SAMPLES, EVALUATED, DRAWS = 2048, 2500, 20
"""Features of the timed epoch of heads, samples of the timed evaluation, and draws of its
bootstrap; more of them take longer in proportion."""

META = torch.device("meta")


def batch_s(spec: TrialSpec, device: torch.device) -> tuple[float, float]:
    """Return the seconds of a training step of a network, and of one image in evaluation."""
    whole = spec.network.batch_size
    size = min(FIRST_BATCH, whole)
    step_s, image_s = _step_s(spec, size, device)
    if step_s < STEP_S and size < whole:
        size = min(whole, max(2 * size, int(size * STEP_S / max(step_s, 1e-6))))
        step_s, image_s = _step_s(spec, size, device)
    return step_s * whole / size, image_s


def _step_s(spec: TrialSpec, size: int, device: torch.device) -> tuple[float, float]:
    """Return the same as ``batch_s`` for a batch of one size; the first step warms up."""
    info, places = spec.data.info, torch.arange(size)
    side = info.stored or info.size
    pixels = torch.randint(256, (size, info.channels, side, side), generator=_chance())
    split = Split(pixels.to(torch.uint8), places % info.classes, places).to(device)
    network, method = build(spec, size)
    network, method = network.to(device).train(), method.to(device).train()
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


def flops(spec: TrialSpec) -> int:
    """Count the floating-point operations of a training step without data."""
    info, size = spec.data.info, spec.network.batch_size
    # Precision and compilation change no count, and not every one of them runs without numbers.
    plain = spec.network.model_copy(update={"precision": "fp32", "compile": False})
    network, method = build_empty(spec.model_copy(update={"network": plain}), 1)
    labels = torch.zeros(size, dtype=torch.long, device=META)
    images = torch.empty((size, info.channels, info.size, info.size), device=META)
    method.begin_epoch(0, _chance())
    with FlopCounterMode(display=False) as counter:
        method.step(network, Batch(images, labels, labels)).loss.backward()
    return int(counter.get_total_flops())


def build_empty(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    """Build a network and its method on the meta device, without numbers."""
    with META:
        network, method = build(spec, samples)
    return network.to(META), method.to(META)


def bytes_of_network(spec: TrialSpec, samples: int) -> tuple[int, int]:
    """Return the bytes of a network's artifact, and of its checkpoint with the moments."""
    network, method = build_empty(spec, samples)
    weights = _count_bytes([*network.state_dict().values(), *method.state_dict().values()])
    moments = {"sgd": 1 if spec.network.momentum else 0}.get(spec.network.optimizer, 2)
    trained = _count_bytes([*network.parameters(), *method.parameters()])
    best = 0 if spec.network.select == "last" else weights
    return weights, weights + moments * trained + best


def bytes_of_head(spec: TrialSpec, slot: HeadSlot) -> int:
    """Return the bytes of a stored classifier: the head, and its context of the network's own."""
    weight = torch.zeros(spec.data.info.classes, _width(spec))
    own = weight, weight[:, 0]
    context = HeadContext(weight.shape[1], len(weight), slot.epochs, *own, 1.0, weight.device)
    method = METHODS[slot.method].implementation([slot], context)
    # What a method draws while it trains is stored too.
    method.begin_epoch(0)
    method.begin_batch(0)
    return _count_bytes([*own, *tensors_of(method).values()])


def _count_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _width(spec: TrialSpec) -> int:
    """Return the number of features."""
    record = spec.data.import_record
    return build_empty(spec, 1)[0].width if record is None else record.width


def heads_epoch_s(
    spec: TrialSpec, slots: Sequence[HeadSlot], sizes: Sizes, device: torch.device
) -> float:
    """Return the seconds of an epoch of a head batch on the bank of a network."""
    samples, width = min(sizes.train, HEAD_SAMPLES), _width(spec)
    classes, chance = spec.data.info.classes, _chance()

    def draw(count: int) -> FeatureSplit:
        labels = torch.randint(classes, (count,), generator=chance)
        features = torch.rand(count, width, generator=chance)
        return FeatureSplit(features, torch.rand(count, classes, generator=chance), labels)

    train, select = draw(samples), draw(min(sizes.select, HEAD_SAMPLES))
    head = torch.rand(classes, width, generator=chance), torch.zeros(classes)
    # Random features in place of those of a network that is not trained yet.
    bank: Any = SimpleNamespace(
        about={"train_views": 1, "accuracy": {"train": 1.0, "select": 1.0}},
        views=1,
        train=lambda view=0: train,
        select=lambda: select,
        evaluated=lambda: {"select": select},
        own_head=lambda: head,
    )
    # The first epoch warms up, and another one is timed.
    long = [slot.model_copy(update={"epochs": slot.epochs + 1}) for slot in slots]
    with on_threads(HEAD_THREADS):
        part = in_parts(long, bank)[0]
        trainer = PopulationTrainer(part, bank, 0, device)
        next(trainer)
        return _seconds(lambda: next(trainer)) * sizes.train / samples * len(long) / len(part)


def evaluation_s(slot: PostHocSlot | None, classes: int) -> tuple[float, float]:
    """Return the seconds of the fit of a post-hoc method and of all metrics, per sample."""
    logits = dict.fromkeys(("select", "calib", "test"), _logits(classes))
    fit_s = _seconds(lambda: fit_transform(slot, _logits(classes))) if slot else 0.0
    metrics_s = _seconds(lambda: evaluate_one(logits, None)) / len(logits)
    return fit_s / EVALUATED, metrics_s / EVALUATED


def draw_s(classes: int) -> float:
    """Return the seconds of the bootstrap of a trial, per sample and draw."""
    split = _logits(classes)
    known = split.logits.double(), split.labels
    return _seconds(lambda: bootstrap(*known, DRAWS, calib=known)) / EVALUATED / DRAWS


def _logits(classes: int) -> SplitLogits:
    """Draw the logits of an over-confident classifier."""
    chance = _chance()
    labels = torch.randint(classes, (EVALUATED,), generator=chance)
    logits = torch.randn(1, EVALUATED, classes, generator=chance)
    logits[0, torch.arange(EVALUATED), labels] += 3
    return SplitLogits(2 * logits, labels)


def _chance() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - started
