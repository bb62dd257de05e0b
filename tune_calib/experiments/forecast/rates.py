"""Seconds of an epoch: measured in earlier results, else from a step that is timed now."""

import json
import math
import statistics
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.engine.execution import resolve_execution
from tune_calib.engine.head_batch import head_batch_key
from tune_calib.engine.machine import count_cores, on_threads
from tune_calib.engine.network import build, count_compiled_steps
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store, generator, read_manifest
from tune_calib.errors import UserError
from tune_calib.methods._base import Batch, NetworkMethod
from tune_calib.models.network import Network
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.gpus import Attained, Gpu, find_head_step
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json

HEAD_COLUMNS = ("data", "backbone", "head", "status", "wall_s", "population", "gpu", "device")

FIRST_BATCH, STEP_S = 4, 0.4
"""Images in the first timed step, and the seconds of a step above which no larger one is timed."""

META = torch.device("meta")


class Rate(NamedTuple):
    """Seconds per epoch, NaN if unknown, and the origin of the number for the user."""

    seconds: float
    source: str


UNKNOWN = Rate(math.nan, "unknown: not measured, and this machine lacks the GPU or the cores")


class Rates:
    """Rates on one device; for a named ``gpu`` nothing is timed."""

    def __init__(
        self,
        out: AnyPath,
        store: Store,
        data_root: Path | None,
        device: torch.device,
        gpu: Gpu | None = None,
    ) -> None:
        self.out, self.store, self.data_root = out, store, data_root
        self.device, self.gpu = device, gpu
        self._sizes: dict[DataSlot, Sizes] = {}

    def sizes(self, slot: DataSlot) -> Sizes:
        """Return the size of each split: the published one, otherwise that of the files."""
        if slot not in self._sizes:
            self._sizes[slot] = self._find_sizes(slot)
        return self._sizes[slot]

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
        train, select, calib = development.train, development.select, development.calib
        return Sizes(len(train), len(select), len(calib), len(test), development.remark)

    def network(self, spec: TrialSpec) -> Rate:
        """Return the rate of the network of a spec, unknown if it cannot be timed here."""
        if epochs := self._trained.get(kind_of(spec)):
            return self._measured(statistics.median(epochs), f"{len(epochs)} in the store")
        plain = build_plain(kind_of(spec))
        if self.gpu is not None:
            attained = self._attained(self.gpu, spec)
            step_s = count_flops(plain) / attained.flops
            source = f"not measured: {attained.flops / 1e12:.3g} TFLOP/s, {attained.origin}"
        elif self._can_time(plain.network.threads):
            step_s, source = time_step(plain, self.device), "from timing one batch of ce now"
        else:
            return UNKNOWN
        return Rate(step_s / plain.network.batch_size / 3 * self._count_passes(spec), source)

    def _attained(self, gpu: Gpu, spec: TrialSpec) -> Attained:
        """Return the rate of operations on a GPU whose machine is assumed to have a compiler."""
        slot = spec.network
        is_capturable = METHODS[slot.method].implementation.is_capturable
        steps = count_compiled_steps(slot, self.sizes(spec.data).train)
        execution = resolve_execution(
            slot.execution, self.device, is_capturable, steps, has_compiler=True
        )
        return gpu.attained(slot.backbone, execution, slot.precision)

    def image_s(self, spec: TrialSpec) -> float:
        """Return the seconds of a forward pass per image."""
        return self.network(spec).seconds / self._count_passes(spec)

    def _count_passes(self, spec: TrialSpec) -> int:
        """Count the forward passes of images that take as long as an epoch of training."""
        sizes, passes = self.sizes(spec.data), 3  # a step is a forward pass and twice as much back
        if "two_forward_passes" in METHODS[spec.network.method].needs:
            passes *= 2
        return passes * sizes.train + sizes.select

    def _measured(self, seconds: float, where: str) -> Rate:
        device = f" on {self.gpu.name}" if self.gpu else ""
        return Rate(seconds, f"measured{device}, {where}")

    def _can_time(self, threads: int) -> bool:
        has_device = self.device.type == "cpu" or torch.cuda.is_available()
        return has_device and threads <= count_cores()

    def _is_alike(self, device: str | None, gpu: str | None) -> bool:
        """Return whether results of a device, with torch's name of its GPU, count as measured."""
        return device == self.device.type and (self.gpu is None or self.gpu.is_named(gpu))

    @cached_property
    def _trained(self) -> dict[TrialSpec, list[float]]:
        """Seconds an epoch of the stored networks of each kind that this device trained."""
        trained: dict[TrialSpec, list[float]] = {}
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            with suppress(UserError):  # a damaged file
                manifest = read_manifest(path.parent)
                gpu, epochs = manifest.get("machine", {}).get("gpu"), len(manifest["history"])
                if epochs and self._is_alike(manifest.get("device"), gpu):
                    kind = kind_of(TrialSpec.build(**json.loads(manifest["spec"])))
                    trained.setdefault(kind, []).append(manifest["train_s"] / epochs)
        return trained

    def heads(self, spec: TrialSpec, count: int) -> Rate:
        """Return the rate of a batch of heads like that of a spec, if one is finished here."""
        assert spec.head is not None
        key = canonical_json(spec.data), spec.network.backbone, _shape_of(spec.head)
        if key in self._finished_heads:
            seconds, epochs = self._finished_heads[key]
            return self._measured(seconds / epochs * count, f"earlier rows in {self.out}")
        if self.gpu is not None:
            steps = math.ceil(self.sizes(spec.data).train / spec.head.batch_size)
            is_capturable = METHODS[spec.head.method].implementation.is_capturable
            execution = resolve_execution(spec.network.execution, self.device, is_capturable)
            step_s, origin = find_head_step(count, execution)
            return Rate(steps * step_s, f"not measured: {origin}")
        return Rate(math.nan, "unknown until one is trained here")

    @cached_property
    def _finished_heads(self) -> dict[Hashable, tuple[float, int]]:
        """Seconds and epochs of the finished heads in all folders, by data, backbone and shape."""
        sums: dict[Hashable, tuple[float, int]] = {}
        for folder in {path.parent for path in self.out.glob("*/trials")} | {self.out}:
            for row in read_table(folder, "trials", columns=HEAD_COLUMNS).to_pylist():
                if not row["head"] or row["status"] != "done":
                    continue
                if self._is_alike(row["device"], row["gpu"]):
                    slot = HeadSlot.build(**json.loads(row["head"]))
                    key = row["data"], row["backbone"], _shape_of(slot)
                    seconds, epochs = sums.get(key, (0.0, 0))
                    sums[key] = seconds + row["wall_s"] / row["population"], epochs + slot.epochs
        return sums


def kind_of(spec: TrialSpec) -> TrialSpec:
    """Return the data and network of a spec without its seed, length and execution of training."""
    other = {"seed": 0, "epochs": 1, "milestones": (), "execution": "auto"}
    network = spec.network.model_copy(update=other)
    return spec.model_copy(update={"network": network, "head": None, "posthoc": None})


@cache
def build_plain(spec: TrialSpec) -> TrialSpec:
    """Build the spec of the same network, trained with cross entropy."""
    of_method = {"method", "params", "plugin", "seed", "milestones"}
    fields = spec.network.model_dump(exclude=of_method)
    return TrialSpec.build(data=spec.data.model_dump(), network={**fields, "epochs": 3})


def _shape_of(slot: HeadSlot) -> Hashable:
    """Return the settings that heads of a batch share, except the length of training."""
    return head_batch_key(slot.model_copy(update={"epochs": 1}))


@cache
def time_step(spec: TrialSpec, device: torch.device) -> float:
    """Time a training step of a network in seconds, if it is slow with a part of its batch."""
    info, batch_size = spec.data.info, spec.network.batch_size
    network, method = build(spec, batch_size)
    parts = network.to(device).train(), method.to(device).train()
    size = min(FIRST_BATCH, batch_size)
    with on_threads(spec.network.threads):
        step_s = _seconds(build_step(*parts, info, size=size))
        if step_s < STEP_S and size < batch_size:
            size = min(batch_size, max(size, int(size * STEP_S / max(step_s, 1e-6))))
            step_s = _seconds(build_step(*parts, info, size=size))
    return step_s * batch_size / size


def build_step(
    network: Network, method: NetworkMethod, info: DatasetInfo, size: int
) -> Callable[[], None]:
    """Return a training step on random images, without that of the optimiser."""
    device = next(network.parameters()).device
    shape = (size, info.channels, info.size, info.size)
    images = torch.rand(shape, generator=generator(0)).to(device)
    indices = torch.arange(size, device=device)
    batch = Batch(images, indices % info.classes, indices)
    method.begin_epoch(0, generator(0))

    def step() -> None:
        network.zero_grad()
        method.step(network, batch).loss.backward()

    return step


@cache
def count_flops(spec: TrialSpec) -> int:
    """Count the floating-point operations of a training step, on tensors without data."""
    # Precision does not change the count, but some fail on tensors without data.
    plain = spec.network.model_copy(update={"precision": "fp32"})
    parts = build_empty(spec.model_copy(update={"network": plain}), 1)
    step = build_step(*parts, spec.data.info, size=spec.network.batch_size)
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def build_empty(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    """Build a network and its method on the meta device, where tensors have no data."""
    with META:
        network, method = build(spec, samples)
    return network.to(META), method.to(META)


def _seconds(work: Callable[[], Any]) -> float:
    """Time some work after a warm-up; return the shorter of two times in seconds."""
    work()
    times = []
    for _ in range(2):
        started = time.monotonic()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.monotonic() - started)
    return min(times)
