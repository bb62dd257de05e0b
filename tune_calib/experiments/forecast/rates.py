"""Estimate the time of epochs and evaluations, from earlier results or by timing them now."""

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

SHARES = {"fp32": 0.41, "tf32": 0.14, "bf16": 0.06}
"""Share of a GPU's stated peak rate that training reaches by precision, for all GPUs and networks.
In fp32, the geometric mean of ResNet-18 (37 %) and fast_cnn (46 %) on an H100; in TF32, that of the
four networks in table 4 of MaC-Cal on an A40 (7 to 32 %); in bf16, that of fast_cnn on an H100. See
docs/pages/experiment-files.md#a-named-gpu."""

HEAD_STEP_S = 1e-3
"""Seconds per step of a head batch on a GPU, whose matrix products are too small to count."""

METRICS_S, CLASS_S, DRAW_S, FIT_S = 1e-5, 3e-7, 3e-6, 4e-6
"""Seconds on an idle core: of all metrics per sample, and more per class; of a bootstrap draw per
sample; of a post-hoc fit per sample and class, the median over methods."""

HEAD_COLUMNS = ("data", "backbone", "head", "status", "wall_s", "population", "gpu", "device")
STATED = "stated rate, not measured"


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
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def _once(self, key: Hashable, find: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = find()
        known: T = self._known[key]
        return known

    def sizes(self, slot: DataSlot) -> Sizes:
        """Return the size of each split: the published one, otherwise that of the files."""
        return self._once(("sizes", canonical_json(slot)), lambda: self._find_sizes(slot))

    def _find_sizes(self, slot: DataSlot) -> Sizes:
        if (record := slot.import_record) is not None:
            return Sizes(record.train, record.select, record.calib, record.test)
        if self.gpu is not None or slot.info.published is not None:
            return published_sizes(slot)  # for a named GPU, data without published sizes is refused
        # A dry run writes nothing, so the cache of images is used only if it exists.
        images = self.store.images
        where = (slot, self.data_root, images if images.exists() else None)
        cut = load_development(*where)
        return Sizes(len(cut.train), len(cut.select), len(cut.calib), len(load_test(*where)))

    def network_bytes(self, spec: TrialSpec) -> tuple[int, int]:
        """Return the sizes in bytes of a network's artifact and of its checkpoint."""
        key = "bytes", str(kind_of(spec))
        return self._once(key, lambda: bytes_of_network(spec, self.sizes(spec.data).train))

    def head_bytes(self, spec: TrialSpec, slot: HeadSlot) -> int:
        """Return the size in bytes of a stored head on the network of a spec."""
        key = "bytes", canonical_json(spec.data), spec.network.backbone, head_batch_key(slot)
        return self._once(key, lambda: bytes_of_head(spec, slot, self.width(spec)))

    def width(self, spec: TrialSpec) -> int:
        """Return the number of features of the network of a spec."""
        key = "width", canonical_json(spec.data), spec.network.backbone, spec.network.init
        return self._once(key, lambda: _width(spec))

    def network(self, spec: TrialSpec) -> Rate:
        """Return the rate of the network of a spec, unknown if it cannot be timed here."""
        return self._once(str(kind_of(spec)), lambda: self._find_network(spec))

    def _find_network(self, spec: TrialSpec) -> Rate:
        own = kind_of(spec)
        if measured := [epoch_s for kind, epoch_s in self._trained if kind == own]:
            return self._measured(statistics.median(measured), f"{len(measured)} in the store")
        step_s, image_s = self._batch(spec, spec.network.threads)
        if math.isnan(step_s):
            return UNKNOWN
        sizes, needs = self.sizes(spec.data), METHODS[spec.network.method].needs
        steps = math.ceil(sizes.train / spec.network.batch_size)
        steps *= 2 if "two_forward_passes" in needs else 1
        evaluated = sizes.select + (sizes.calib if "calib_pass" in needs else 0)
        source = STATED if self.gpu else "from timing one batch of ce now"
        return Rate(steps * step_s + evaluated * image_s, source)

    def _measured(self, seconds: float, where: str) -> Rate:
        return Rate(seconds, f"measured{f' on {self.gpu.name}' if self.gpu else ''}, {where}")

    def image_s(self, spec: TrialSpec) -> float:
        """Return the seconds of a forward pass per image while a trial of heads builds its bank."""
        return self._batch(spec, HEAD_THREADS)[1]

    def _batch(self, spec: TrialSpec, threads: int) -> tuple[float, float]:
        """Return the seconds of a training step with cross entropy, and of evaluating an image."""
        is_here = self.device.type == "cpu" or torch.cuda.is_available()
        if self.gpu is None and (not is_here or threads > (os.cpu_count() or 1)):
            return math.nan, math.nan
        own = {"method", "params", "plugin", "seed", "milestones"}
        fields = spec.network.model_dump(exclude=own)
        plain = TrialSpec.build(data=spec.data.model_dump(), network={**fields, "epochs": 3})

        def find() -> tuple[float, float]:
            if self.gpu is None:
                with on_threads(threads):
                    return batch_s(plain, self.device)
            step_s = flops(plain) / attained(self.gpu, plain.network.precision)
            # The forward pass is one of three equally expensive passes of a step.
            return step_s, step_s / plain.network.batch_size / 3

        return self._once((plain.network_id, threads), find)

    @cached_property
    def _trained(self) -> list[tuple[tuple[DataSlot, NetworkSlot], float]]:
        """Kind and seconds an epoch of the stored networks that were trained as here."""
        trained = []
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            with suppress(UserError):  # a damaged file, or a spec of an earlier version
                about = read_manifest(path.parent)
                spec = TrialSpec.build(**json.loads(about["spec"]))
                if self.gpu is not None:
                    is_same = self.gpu.is_named(about.get("machine", {}).get("gpu"))
                else:
                    is_same = about.get("threads") == spec.network.threads
                if about["history"] and is_same and about.get("device") == self.device.type:
                    trained.append((kind_of(spec), about["train_s"] / len(about["history"])))
        return trained

    def heads(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """Return the rate of a head batch on the bank of a network, unknown as in ``network``."""
        shape = head_batch_key(slots[0])
        key = (canonical_json(spec.data), spec.network.backbone, shape, len(slots))
        return self._once(key, lambda: self._find_heads(spec, slots))

    def _find_heads(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        sizes = self.sizes(spec.data)
        key = canonical_json(spec.data), spec.network.backbone, _shape_of(slots[0])
        if key in self._earlier_heads:
            seconds, epochs = self._earlier_heads[key]
            return self._measured(seconds / epochs * len(slots), f"earlier rows in {self.out}")
        if self.gpu is not None:
            steps = math.ceil(sizes.train / slots[0].batch_size)
            return Rate(steps * HEAD_STEP_S, STATED)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            return UNKNOWN
        seconds = heads_epoch_s(spec, slots, sizes, self.device)
        return Rate(seconds, "from timing an epoch on random features now")

    @cached_property
    def _earlier_heads(self) -> dict[Hashable, tuple[float, int]]:
        """Seconds and epochs of the finished heads in all folders, by data, backbone and shape."""
        sums: dict[Hashable, tuple[float, int]] = {}
        for folder in {path.parent for path in self.out.glob("*/trials")} | {self.out}:
            for row in read_table(folder, "trials", columns=HEAD_COLUMNS).to_pylist():
                on_gpu = row["device"] == "cuda" and self.gpu and self.gpu.is_named(row["gpu"])
                if not row["head"] or row["status"] != "done" or (self.gpu and not on_gpu):
                    continue
                with suppress(UserError):  # a spec of an earlier version
                    slot = HeadSlot.build(**json.loads(row["head"]))
                    key = row["data"], row["backbone"], _shape_of(slot)
                    seconds, epochs = sums.get(key, (0.0, 0))
                    seconds += row["wall_s"] / row["population"]
                    sums[key] = seconds, epochs + slot.epochs
        return sums

    def evaluation_s(self, spec: TrialSpec, samples: int, draws: int = 0) -> float:
        """Return the seconds of a trial's post-hoc fit, metrics and bootstrap."""
        classes = spec.data.info.classes
        fit_s = FIT_S * classes * self.sizes(spec.data).calib if spec.posthoc else 0.0
        return fit_s + (METRICS_S + CLASS_S * classes + DRAW_S * draws) * samples


def kind_of(spec: TrialSpec) -> tuple[DataSlot, NetworkSlot]:
    """Return the data and network of a spec without its seed and length of training."""
    return spec.data, spec.network.model_copy(update={"seed": 0, "epochs": 1, "milestones": ()})


def _shape_of(slot: HeadSlot) -> Hashable:
    """Return the settings that heads of a batch share, except the length of training."""
    return head_batch_key(slot.model_copy(update={"epochs": 1}))


FIRST_BATCH, STEP_S = 4, 0.4
"""Images in the first timed step, and the seconds of a step above which no larger one is timed."""

HEAD_SAMPLES = 2048
"""Samples in the timed epoch of heads; the time grows in proportion to their number."""

META = torch.device("meta")


def batch_s(spec: TrialSpec, device: torch.device) -> tuple[float, float]:
    """Time a training step of a network, and its evaluation per image; in seconds."""
    whole = spec.network.batch_size
    size = min(FIRST_BATCH, whole)
    step_s, image_s = _step_s(spec, size, device)
    if step_s < STEP_S and size < whole:
        size = min(whole, max(2 * size, int(size * STEP_S / max(step_s, 1e-6))))
        step_s, image_s = _step_s(spec, size, device)
    return step_s * whole / size, image_s


def _step_s(spec: TrialSpec, size: int, device: torch.device) -> tuple[float, float]:
    """Time a step as ``batch_s`` does, with a batch of one size, after a first step as warm-up."""
    info, places = spec.data.info, torch.arange(size)
    side = info.stored or info.size
    pixels = torch.randint(256, (size, info.channels, side, side), generator=_chance())
    split = Split(pixels.to(torch.uint8), places % info.classes, places).to(device)
    network, method = build(spec, size)
    network, method = network.to(device).train(), method.to(device).train()
    method.begin_epoch(0, _chance())

    def step() -> None:
        # Without an optimiser of torch, which loads a compiler first and so takes longer than this.
        images = normalise(split.images[:], info)
        method.step(network, Batch(images, split.labels, split.indices)).loss.backward()
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-1e-3)
                parameter.grad = None

    step()
    step_s = min(_seconds(step) for _ in range(2))
    return step_s, _seconds(lambda: predict(method, network, split.images, info)) / size


def attained(gpu: Gpu, precision: str) -> float:
    """Return the operations a second that training reaches; no mode is slower than float32."""
    modes = gpu.teraflops if precision == "fp32" else [precision]
    return min(gpu.peak(mode) * SHARES[mode] for mode in modes)


def flops(spec: TrialSpec) -> int:
    """Count the floating-point operations of a training step, on tensors without data."""
    info, size = spec.data.info, spec.network.batch_size
    # Precision and compilation do not change the count, but some fail on tensors without data.
    plain = spec.network.model_copy(update={"precision": "fp32", "compile": False})
    network, method = build_empty(spec.model_copy(update={"network": plain}), 1)
    labels = torch.zeros(size, dtype=torch.long, device=META)
    images = torch.empty((size, info.channels, info.size, info.size), device=META)
    method.begin_epoch(0, _chance())
    with FlopCounterMode(display=False) as counter:
        method.step(network, Batch(images, labels, labels)).loss.backward()
    return int(counter.get_total_flops())


class _WithoutDraws(TorchFunctionMode):
    """Leaves out random weights, which tensors without data lack but which take half the time."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        is_draw = func in (Tensor.normal_, Tensor.uniform_)
        return args[0] if is_draw else func(*args, **(kwargs or {}))


def build_empty(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    """Build a network and its method on the meta device, where tensors have no data."""
    with META, _WithoutDraws():
        network, method = build(spec, samples)
    return network.to(META), method.to(META)


def bytes_of_network(spec: TrialSpec, samples: int) -> tuple[int, int]:
    """Return the sizes in bytes of a network's artifact and of its checkpoint, with moments."""
    network, method = build_empty(spec, samples)
    weights = _count_bytes([*network.state_dict().values(), *method.state_dict().values()])
    moments = {"sgd": 1 if spec.network.momentum else 0}.get(spec.network.optimizer, 2)
    trained = _count_bytes([*network.parameters(), *method.parameters()])
    best = 0 if spec.network.select == "last" else weights
    return weights, weights + moments * trained + best


def bytes_of_head(spec: TrialSpec, slot: HeadSlot, width: int) -> int:
    """Return the size in bytes of a stored classifier: the head and the state of its method."""
    weight = torch.zeros(spec.data.info.classes, width)
    own = weight, weight[:, 0]
    context = HeadContext(weight.shape[1], len(weight), slot.epochs, *own, 1.0, weight.device)
    method = METHODS[slot.method].implementation([slot], context)
    # Random draws of a method during training are stored too.
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
    """Time an epoch of a head batch on the bank of a network, in seconds."""
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
        manifest={"train_views": 1, "accuracy": {"train": 1.0, "select": 1.0}},
        views=1,
        train=lambda view=0: train,
        select=lambda: select,
        evaluated=lambda: {"select": select},
        own_head=lambda: head,
    )
    # The first epoch is the warm-up; the second one is timed.
    long = [slot.model_copy(update={"epochs": slot.epochs + 1}) for slot in slots]
    with on_threads(HEAD_THREADS):
        part = in_parts(long, bank)[0]
        trainer = HeadBatchTrainer(part, bank, 0, device)
        next(trainer)
        return _seconds(lambda: next(trainer)) * sizes.train / samples * len(long) / len(part)


def _chance() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - started
