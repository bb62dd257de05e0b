"""Seconds of an epoch: measured in earlier results, else by timing a step now."""

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from tune_calib.data.augment import normalise
from tune_calib.data.base import Split
from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.engine.bank import FeatureSplit
from tune_calib.engine.head_batch import (
    HEAD_THREADS,
    HeadBatchTrainer,
    head_batch_key,
    in_parts,
    tensors_of,
)
from tune_calib.engine.machine import on_threads
from tune_calib.engine.network import build, predict
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store, read_manifest
from tune_calib.errors import UserError
from tune_calib.methods._base import Batch, HeadContext, NetworkMethod
from tune_calib.models.network import Network
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.gpus import Gpu
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec, canonical_json

T = TypeVar("T")

HEAD_STEP_S = 2e-3
"""Seconds per step of a head batch on a GPU, measured on an H100 for 1 to 40 heads (2048-512-100):
its matrix products are too small to count."""

HEAD_SAMPLES = 2048
"""Samples in the timed epoch of heads; the time grows in proportion to their number."""

HEAD_COLUMNS = ("data", "backbone", "head", "status", "wall_s", "population", "gpu", "device")
STATED = "stated rate, not measured"

FIRST_BATCH, STEP_S = 4, 0.4
"""Images in the first timed step, and the seconds of a step above which no larger one is timed."""

META = torch.device("meta")


@dataclass(frozen=True)
class Rate:
    """Seconds per epoch, NaN if unknown, and the origin of the number for the user."""

    seconds: float
    source: str


UNKNOWN = Rate(math.nan, "unknown: not measured, and this machine lacks the GPU or the cores")


@dataclass
class Rates:
    """Rates on one device, each determined once; for a named ``gpu`` nothing is timed."""

    out: AnyPath
    store: Store
    data_root: Path | None
    device: torch.device
    gpu: Gpu | None = None
    _memo: dict[Hashable, Any] = field(default_factory=dict)

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value

    def sizes(self, slot: DataSlot) -> Sizes:
        """Return the size of each split: the published one, otherwise that of the files."""
        return self._once(("sizes", canonical_json(slot)), lambda: self._find_sizes(slot))

    def _find_sizes(self, slot: DataSlot) -> Sizes:
        if (record := slot.import_record) is not None:
            return Sizes(record.train, record.select, calib=record.calib, test=record.test)
        if self.gpu is not None or slot.info.published is not None:
            return published_sizes(slot)  # for a named GPU, data without published sizes is refused
        # A dry run writes nothing, so the cache of images is used only if it exists.
        images = None
        if self.store.images.exists():
            images = self.store.images
        development = load_development(slot, self.data_root, images)
        test = load_test(slot, self.data_root, images)
        splits = development.train, development.select, development.calib, test
        return Sizes(*map(len, splits))

    def network_bytes(self, spec: TrialSpec) -> int:
        """Return the size in bytes of a network's artifact."""
        key = "bytes", str(kind_of(spec))
        return self._once(key, lambda: bytes_of_network(spec, self.sizes(spec.data).train))

    def head_bytes(self, spec: TrialSpec) -> int:
        """Return the size in bytes of the stored classifier of a trial with a head."""
        assert spec.head is not None
        head, width = spec.head, self.width(spec)
        key = "bytes", spec.data.info.classes, width, head_batch_key(head)
        return self._once(key, lambda: bytes_of_head(head, spec.data.info.classes, width))

    def width(self, spec: TrialSpec) -> int:
        """Return the number of features of the network of a spec."""
        if (record := spec.data.import_record) is not None:
            return record.width
        key = "width", canonical_json(spec.data), spec.network.backbone, spec.network.init
        return self._once(key, lambda: build_empty(spec, 1)[0].width)

    def network(self, spec: TrialSpec) -> Rate:
        """Return the rate of the network of a spec, unknown if it cannot be timed here."""
        return self._once(str(kind_of(spec)), lambda: self._find_network(spec))

    def _find_network(self, spec: TrialSpec) -> Rate:
        kind = kind_of(spec)
        if measured := [epoch_s for other, epoch_s in self._trained if other == kind]:
            return self._measured(statistics.median(measured), f"{len(measured)} in the store")
        step_s, image_s = self._time_step(spec, spec.network.threads)
        if math.isnan(step_s):
            return UNKNOWN
        sizes, needs = self.sizes(spec.data), METHODS[spec.network.method].needs
        steps = math.ceil(sizes.train / spec.network.batch_size)
        if "two_forward_passes" in needs:
            steps *= 2
        images = sizes.select
        if "calib_pass" in needs:
            images += sizes.calib
        source = "from timing one batch of ce now"
        if self.gpu is not None:
            source = STATED
        return Rate(steps * step_s + images * image_s, source)

    def _measured(self, seconds: float, where: str) -> Rate:
        device = f" on {self.gpu.name}" if self.gpu else ""
        return Rate(seconds, f"measured{device}, {where}")

    def image_s(self, spec: TrialSpec) -> float:
        """Return the seconds of a forward pass per image while a trial of heads builds its bank."""
        return self._time_step(spec, HEAD_THREADS)[1]

    def _time_step(self, spec: TrialSpec, threads: int) -> tuple[float, float]:
        """Return the seconds of a training step with cross entropy, and of evaluating an image."""
        has_device = self.device.type == "cpu" or torch.cuda.is_available()
        if self.gpu is None and (not has_device or threads > (os.cpu_count() or 1)):
            return math.nan, math.nan
        of_method = {"method", "params", "plugin", "seed", "milestones"}
        fields = spec.network.model_dump(exclude=of_method)
        plain = TrialSpec.build(data=spec.data.model_dump(), network={**fields, "epochs": 3})

        def compute() -> tuple[float, float]:
            if self.gpu is None:
                with on_threads(threads):
                    return batch_s(plain, self.device)
            step_s = flops(plain) / self.gpu.attained(plain.network.precision)
            # The forward pass is one of three equally expensive passes of a step.
            return step_s, step_s / plain.network.batch_size / 3

        return self._once((plain.network_id, threads), compute)

    @cached_property
    def _trained(self) -> list[tuple[tuple[DataSlot, NetworkSlot], float]]:
        """Kind and seconds an epoch of the stored networks that were trained as here."""
        trained = []
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            with suppress(UserError):  # a damaged file
                manifest = read_manifest(path.parent)
                spec = TrialSpec.build(**json.loads(manifest["spec"]))
                if self.gpu is not None:
                    is_same = self.gpu.is_named(manifest.get("machine", {}).get("gpu"))
                else:
                    is_same = manifest.get("threads") == spec.network.threads
                epochs = len(manifest["history"])
                if epochs and is_same and manifest.get("device") == self.device.type:
                    trained.append((kind_of(spec), manifest["train_s"] / epochs))
        return trained

    def heads(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """Return the rate of a head batch on the bank of a network, unknown as in ``network``."""
        key = canonical_json(spec.data), spec.network.backbone, _shape_of(slots[0])
        if key in self._finished_heads:
            seconds, epochs = self._finished_heads[key]
            return self._measured(seconds / epochs * len(slots), f"earlier rows in {self.out}")
        sizes = self.sizes(spec.data)
        if self.device.type == "cuda":
            steps = math.ceil(sizes.train / slots[0].batch_size)
            return Rate(steps * HEAD_STEP_S, STATED)
        width, classes = self.width(spec), spec.data.info.classes
        seconds = heads_epoch_s(width, classes, slots, sizes=sizes)
        return Rate(seconds, "from timing an epoch on random features now")

    @cached_property
    def _finished_heads(self) -> dict[Hashable, tuple[float, int]]:
        """Seconds and epochs of the finished heads in all folders, by data, backbone and shape."""
        sums: dict[Hashable, tuple[float, int]] = {}
        for folder in {path.parent for path in self.out.glob("*/trials")} | {self.out}:
            for row in read_table(folder, "trials", columns=HEAD_COLUMNS).to_pylist():
                is_same = self.gpu is None or self.gpu.is_named(row["gpu"])
                if not row["head"] or row["status"] != "done" or not is_same:
                    continue
                slot = HeadSlot.build(**json.loads(row["head"]))
                key = row["data"], row["backbone"], _shape_of(slot)
                seconds, epochs = sums.get(key, (0.0, 0))
                sums[key] = seconds + row["wall_s"] / row["population"], epochs + slot.epochs
        return sums


def kind_of(spec: TrialSpec) -> tuple[DataSlot, NetworkSlot]:
    """Return the data and network of a spec without its seed and length of training."""
    return spec.data, spec.network.model_copy(update={"seed": 0, "epochs": 1, "milestones": ()})


def _shape_of(slot: HeadSlot) -> Hashable:
    """Return the settings that heads of a batch share, except the length of training."""
    return head_batch_key(slot.model_copy(update={"epochs": 1}))


def batch_s(spec: TrialSpec, device: torch.device) -> tuple[float, float]:
    """Time a training step of a network, and its evaluation per image; in seconds."""
    batch_size = spec.network.batch_size
    size = min(FIRST_BATCH, batch_size)
    step_s, image_s = _step_s(spec, size, device)
    if step_s < STEP_S and size < batch_size:
        size = min(batch_size, max(2 * size, int(size * STEP_S / max(step_s, 1e-6))))
        step_s, image_s = _step_s(spec, size, device)
    return step_s * batch_size / size, image_s


def _step_s(spec: TrialSpec, size: int, device: torch.device) -> tuple[float, float]:
    """Time a step as ``batch_s`` does, with a batch of one size, after a first step as warm-up."""
    info, positions = spec.data.info, torch.arange(size)
    side = info.stored or info.size
    pixels = torch.randint(256, (size, info.channels, side, side), generator=_new_generator())
    split = Split(pixels.to(torch.uint8), positions % info.classes, positions).to(device)
    network, method = build(spec, size)
    network, method = network.to(device).train(), method.to(device).train()
    method.begin_epoch(0, _new_generator())

    def step() -> None:
        # Without an optimiser of torch, which loads a compiler first and so takes longer than this.
        images = normalise(split.images[:], info)
        method.step(network, Batch(images, split.labels, split.indices)).loss.backward()
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-1e-3)
                parameter.grad = None

    step()
    step_s = min(_seconds(step), _seconds(step))
    return step_s, _seconds(lambda: predict(method, network, split.images, info=info)) / size


def flops(spec: TrialSpec) -> int:
    """Count the floating-point operations of a training step, on tensors without data."""
    info, size = spec.data.info, spec.network.batch_size
    # Precision and compilation do not change the count, but some fail on tensors without data.
    plain = spec.network.model_copy(update={"precision": "fp32", "compile": False})
    network, method = build_empty(spec.model_copy(update={"network": plain}), 1)
    labels = torch.zeros(size, dtype=torch.long, device=META)
    images = torch.empty((size, info.channels, info.size, info.size), device=META)
    method.begin_epoch(0, _new_generator())
    with FlopCounterMode(display=False) as counter:
        method.step(network, Batch(images, labels, labels)).loss.backward()
    return int(counter.get_total_flops())


class _WithoutDraws(TorchFunctionMode):
    """Leaves out random weights, which tensors without data lack but which take half the time."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        return func(*args, **(kwargs or {}))


def build_empty(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    """Build a network and its method on the meta device, where tensors have no data."""
    with META, _WithoutDraws():
        network, method = build(spec, samples)
    return network.to(META), method.to(META)


def bytes_of_network(spec: TrialSpec, samples: int) -> int:
    """Return the size in bytes of a network's artifact."""
    network, method = build_empty(spec, samples)
    tensors = [*network.state_dict().values(), *method.state_dict().values()]
    return sum(tensor.nbytes for tensor in tensors)


def bytes_of_head(slot: HeadSlot, classes: int, width: int) -> int:
    """Return the size in bytes of a stored classifier: the head and the state of its method."""
    weight, bias = torch.zeros(classes, width), torch.zeros(classes)
    context = HeadContext(width, classes, slot.epochs, weight, bias, 1.0, weight.device)
    method = METHODS[slot.method].implementation([slot], context)
    # Random draws of a method during training are stored too.
    method.begin_epoch(0)
    method.begin_batch(0)
    return sum(tensor.nbytes for tensor in (weight, bias, *tensors_of(method).values()))


def heads_epoch_s(width: int, classes: int, slots: Sequence[HeadSlot], sizes: Sizes) -> float:
    """Time an epoch of a head batch on random features on one core, in seconds."""
    generator = _new_generator()

    def draw(count: int) -> FeatureSplit:
        labels = torch.randint(classes, (count,), generator=generator)
        features = torch.rand(count, width, generator=generator)
        return FeatureSplit(features, torch.rand(count, classes, generator=generator), labels)

    samples = min(sizes.train, HEAD_SAMPLES)
    train, select = draw(samples), draw(min(sizes.select, HEAD_SAMPLES))
    own_head = torch.rand(classes, width, generator=generator), torch.zeros(classes)
    bank: Any = SimpleNamespace(
        manifest={"train_views": 1, "accuracy": {"train": 1.0, "select": 1.0}},
        views=1,
        train=lambda view=0: train,
        select=lambda: select,
        evaluated=lambda: {"select": select},
        own_head=lambda: own_head,
    )
    # The first epoch is the warm-up; the second one is timed.
    longer = [slot.model_copy(update={"epochs": slot.epochs + 1}) for slot in slots]
    with on_threads(HEAD_THREADS):
        part = in_parts(longer, bank)[0]
        trainer = HeadBatchTrainer(part, bank, network_seed=0, device=torch.device("cpu"))
        next(trainer)
        epoch_s = _seconds(lambda: next(trainer))
    return epoch_s * sizes.train / samples * len(slots) / len(part)


def _new_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - started
