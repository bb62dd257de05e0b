"""Find how long an epoch or an evaluation takes: from earlier results, else timed now."""

import json
import math
import os
import statistics
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.engine.machine import on_threads
from tune_calib.engine.population import HEAD_THREADS, population_key
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.errors import UserError
from tune_calib.experiments.forecast import measure
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.gpus import Gpu
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec, canonical_json

T = TypeVar("T")

SHARE = 0.14
"""Share of a GPU's stated peak that training reaches. One number for all GPUs, networks and
precisions: the geometric mean of the four networks whose seconds on an A40 MaC-Cal prints (its
table 4), which reach 7 to 32 %; docs/pages/experiment-files.md#a-named-gpu."""

HEAD_STEP_S = 1e-3
"""Seconds of a step of a head batch on a GPU, whose products are too small to count."""

HEAD_COLUMNS = ("data", "backbone", "head", "status", "wall_s", "population", "gpu", "device")
STATED = "stated rate, not measured"


@dataclass(frozen=True)
class Rate:
    """Seconds of one epoch, NaN if unknown, and where the number is from, for the user."""

    seconds: float
    source: str


UNKNOWN = Rate(math.nan, "unknown: no such GPU or cores here, and none measured")


@dataclass
class Rates:
    """Rates on one device; each is found once. With ``gpu``, which is not here, none is timed."""

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
        """Return the samples of each split: the published ones, else those of the files."""
        return self._once(("sizes", canonical_json(slot)), lambda: self._find_sizes(slot))

    def _find_sizes(self, slot: DataSlot) -> Sizes:
        if (record := slot.import_record) is not None:
            return Sizes(record.train, record.select, record.calib, record.test)
        if self.gpu is not None or slot.info.published is not None:
            return published_sizes(slot)  # refused for a named GPU where none are published
        # A dry run writes nothing: the cache is read where there is one.
        images = self.store.images
        where = (slot, self.data_root, images if images.exists() else None)
        cut = load_development(*where)
        return Sizes(len(cut.train), len(cut.select), len(cut.calib), len(load_test(*where)))

    def network_bytes(self, spec: TrialSpec) -> tuple[int, int]:
        """Return the bytes of a network's artifact, and of its checkpoint with the moments."""
        samples = self.sizes(spec.data).train
        key = "bytes", str(kind_of(spec))
        return self._once(key, lambda: measure.bytes_of_network(spec, samples))

    def head_bytes(self, spec: TrialSpec, slot: HeadSlot) -> int:
        """Return the bytes of a stored head on the network of a spec."""
        key = "bytes", canonical_json(spec.data), spec.network.backbone, population_key(slot)
        return self._once(key, lambda: measure.bytes_of_head(spec, slot))

    def network(self, spec: TrialSpec) -> Rate:
        """Return the rate of the network of a spec; unknown if it cannot be timed here."""
        return self._once(str(kind_of(spec)), lambda: self._find_network(spec))

    def _find_network(self, spec: TrialSpec) -> Rate:
        measured = [
            about["train_s"] / len(about["history"])
            for kind, about in self._trained
            if kind == kind_of(spec) and self._ran_here(spec, about)
        ]
        if measured:
            return self._measured(statistics.median(measured), f"{len(measured)} in the store")
        step_s, image_s = self._batch(spec, spec.network.threads)
        if math.isnan(step_s):
            return UNKNOWN
        sizes, needs = self.sizes(spec.data), METHODS[spec.network.method].needs
        steps = math.ceil(sizes.train / spec.network.batch_size)
        steps *= 2 if "two_forward_passes" in needs else 1
        evaluated = sizes.select + (sizes.calib if "calib_pass" in needs else 0)
        source = STATED if self.gpu else "from one batch of ce timed now"
        return Rate(steps * step_s + evaluated * image_s, source)

    def _measured(self, seconds: float, where: str) -> Rate:
        return Rate(seconds, f"measured{f' on {self.gpu.name}' if self.gpu else ''}, {where}")

    def image_s(self, spec: TrialSpec) -> float:
        """Return the seconds of the backbone for one image, as a trial of heads builds its bank."""
        return self._batch(spec, HEAD_THREADS)[1]

    def _batch(self, spec: TrialSpec, threads: int) -> tuple[float, float]:
        """Return the seconds of a training step with cross entropy, and of an image."""
        is_here = self.device.type == "cpu" or torch.cuda.is_available()
        if self.gpu is None and (not is_here or threads > (os.cpu_count() or 1)):
            return math.nan, math.nan
        own = {"method", "params", "plugin", "seed", "milestones"}
        fields = spec.network.model_dump(exclude=own)
        plain = TrialSpec.build(data=spec.data.model_dump(), network={**fields, "epochs": 3})

        def find() -> tuple[float, float]:
            if self.gpu is None:
                with on_threads(threads):
                    return measure.batch_s(plain, self.device)
            step_s = measure.flops(plain) / self.gpu.peak(plain.network.precision) / SHARE
            # Of the three passes of a step, one is forward.
            return step_s, step_s / plain.network.batch_size / 3

        return self._once((plain.network_id, threads), find)

    @cached_property
    def _trained(self) -> list[tuple[tuple[DataSlot, NetworkSlot], dict[str, Any]]]:
        """The kinds of the networks in the store, and their manifests."""
        trained = []
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            about = json.loads(path.read_text())
            with suppress(UserError):  # a spec of an earlier version
                spec = TrialSpec.build(**json.loads(about["spec"]))
                if about["history"]:
                    trained.append((kind_of(spec), about))
        return trained

    def _ran_here(self, spec: TrialSpec, about: dict[str, Any]) -> bool:
        """Return whether a stored network was trained as one would be now."""
        if self.gpu is not None:
            name = about.get("machine", {}).get("gpu")
            return self.gpu.is_named(name) and about["device"] == "cuda"
        ran = {"threads": spec.network.threads, "device": self.device.type}
        return ran.items() <= about.items()

    def heads(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """Return the rate of a head batch on the bank of a network; unknown as in ``network``."""
        shape = population_key(slots[0])
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
        seconds = measure.heads_epoch_s(spec, slots, sizes, self.device)
        return Rate(seconds, "from an epoch on random features now")

    @cached_property
    def _earlier_heads(self) -> dict[Hashable, tuple[float, int]]:
        """Seconds and epochs of finished heads by data, backbone and shape.

        They are those of the folder, and of every folder of an experiment file.
        """
        sums: dict[Hashable, tuple[float, int]] = {}
        for folder in {path.parent for path in self.out.glob("*/trials")} | {self.out}:
            for row in read_table(folder, "trials", columns=HEAD_COLUMNS).to_pylist():
                on_gpu = row["device"] == "cuda" and self.gpu and self.gpu.is_named(row["gpu"])
                if not row["head"] or row["status"] != "done" or (self.gpu and not on_gpu):
                    continue
                with suppress(UserError):  # a spec of an earlier version
                    head = json.loads(row["head"])
                    slot = TrialSpec.build(network={}, head=head).head
                    assert slot is not None
                    key = row["data"], row["backbone"], _shape_of(slot)
                    seconds, epochs = sums.get(key, (0.0, 0))
                    seconds += row["wall_s"] / row["population"]
                    sums[key] = seconds, epochs + slot.epochs
        return sums

    def evaluation_s(self, spec: TrialSpec, samples: int, draws: int = 0) -> float:
        """Return the seconds of the post-hoc fit of a trial, its metrics and its bootstrap."""
        classes, slot = spec.data.info.classes, spec.posthoc
        calib, key = self.sizes(spec.data).calib, (classes, slot and canonical_json(slot))
        with on_threads(HEAD_THREADS):  # as trials are evaluated
            fit_s, metrics_s = self._once(key, lambda: measure.evaluation_s(slot, classes))
            draw_s = self._once(classes, lambda: measure.draw_s(classes)) if draws else 0.0
        return fit_s * calib + (metrics_s + draw_s * draws) * samples


def kind_of(spec: TrialSpec) -> tuple[DataSlot, NetworkSlot]:
    """Return the data and network of a spec without its seed and the length of its training."""
    return spec.data, spec.network.model_copy(update={"seed": 0, "epochs": 1, "milestones": ()})


def _shape_of(slot: HeadSlot) -> Hashable:
    """Return what heads trained together share, except the length of their training."""
    return population_key(slot.model_copy(update={"epochs": 1}))
