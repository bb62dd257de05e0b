"""What an epoch takes: from earlier results where there are any, else from a batch timed now."""

import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch

from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.engine.population import HEAD_THREADS, population_key
from tune_calib.engine.precision import on_threads
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.errors import UserError
from tune_calib.experiments.forecast import timed
from tune_calib.paths import Place
from tune_calib.results.tables import read_table
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec, canonical_json


def cores() -> int:
    """CPU cores of this machine."""
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Rate:
    """Seconds of one epoch.

    Attributes:
        seconds: of it.
        source: where the number is from, for the user.
    """

    seconds: float
    source: str


@dataclass
class Clock:
    """Rates for one sweep; each is found once.

    Attributes:
        out: folder of the sweep.
        store: its artifacts.
        data_root: where data sets lie.
        device: where the networks run.
    """

    out: Place
    store: Store
    data_root: Path | None
    device: torch.device
    where: ClassVar[str] = ""
    why_unknown: ClassVar[str] = "no such GPU or cores here"
    _sizes: dict[str, Sizes] = field(default_factory=dict)
    _networks: dict[str, Rate | None] = field(default_factory=dict)
    _batches: dict[str, tuple[float, float]] = field(default_factory=dict)
    _heads: dict[str, Rate | None] = field(default_factory=dict)
    _judged: dict[str, float] = field(default_factory=dict)

    def sizes(self, slot: DataSlot) -> Sizes:
        """Samples of each split of a data slot; the published ones where there are any."""
        key = canonical_json(slot)
        if key not in self._sizes:
            record = slot.import_record
            if record is not None:
                found = Sizes(record.train, record.select, record.calib, record.test)
            elif slot.info.published is not None:
                found = published_sizes(slot)
            else:
                found = self._counted(slot)
            self._sizes[key] = found
        return self._sizes[key]

    def _counted(self, slot: DataSlot) -> Sizes:
        """Images of a data set of which each copy has its own number."""
        # A dry run writes nothing: the cache is read where there is one.
        cache = self.store.images
        where = (slot, self.data_root, cache if cache.exists() else None)
        cut = load_development(*where)
        return Sizes(len(cut.train), len(cut.select), len(cut.calib), len(load_test(*where)))

    @property
    def is_here(self) -> bool:
        """Whether this machine has the device."""
        return self.device.type == "cpu" or torch.cuda.is_available()

    def network(self, spec: TrialSpec) -> Rate | None:
        """An epoch of the network of a spec; None if it was never measured and cannot be now."""
        key = str(kind_of(spec))
        if key not in self._networks:
            self._networks[key] = self._network(spec)
        return self._networks[key]

    def _network(self, spec: TrialSpec) -> Rate | None:
        measured = self._in_store(spec)
        if measured:
            source = f"measured{self.where}, {len(measured)} in the store"
            return Rate(statistics.median(measured), source)
        return self.not_measured(spec)

    def not_measured(self, spec: TrialSpec) -> Rate | None:
        """An epoch of a network of which the store holds no like; None if it cannot be timed."""
        if not self.is_here or spec.network.threads > cores():
            return None
        step_s, image_s = self._batch(spec, spec.network.threads)
        passes = 2 if "two_forward_passes" in METHODS[spec.network.method].needs else 1
        seconds = self.steps(spec) * passes * step_s + self.judged(spec) * image_s
        return Rate(seconds, "from one batch of ce timed now")

    def told(self, spec: TrialSpec) -> str:
        """Networks that a rate is told of once."""
        return f"{spec.network.backbone} on {spec.data.dataset}"

    def steps(self, spec: TrialSpec) -> int:
        """Steps of an epoch of a network."""
        return math.ceil(self.sizes(spec.data).train / spec.network.batch_size)

    def judged(self, spec: TrialSpec) -> int:
        """Images that a network is evaluated on at the end of an epoch."""
        sizes, needs = self.sizes(spec.data), METHODS[spec.network.method].needs
        return sizes.select + (sizes.calib if "calib_pass" in needs else 0)

    def _in_store(self, spec: TrialSpec) -> list[float]:
        """Seconds an epoch of networks in the store that differ in seed and epochs at most."""
        kind = kind_of(spec)
        return [
            about["train_s"] / len(about["history"])
            for each, about in self._trained
            if each == kind and self.ran_here(spec, about)
        ]

    @cached_property
    def _trained(self) -> list[tuple[tuple[DataSlot, NetworkSlot], dict[str, Any]]]:
        """What the networks in the store are, and their manifests."""
        found = []
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            about = json.loads(path.read_text())
            with suppress(UserError):  # a spec of an earlier version
                spec = TrialSpec.build(**json.loads(about["spec"]))
                if about["history"]:
                    found.append((kind_of(spec), about))
        return found

    def ran_here(self, spec: TrialSpec, about: Mapping[str, Any]) -> bool:
        """Whether what a manifest tells of was computed as a network would be now."""
        ran = {"threads": spec.network.threads, "device": self.device.type}
        return ran.items() <= about.items()

    def image_s(self, spec: TrialSpec) -> float:
        """Seconds of the backbone for one image, as a trial of heads builds its bank."""
        return self._batch(spec, HEAD_THREADS)[1]

    def _batch(self, spec: TrialSpec, threads: int) -> tuple[float, float]:
        """Seconds of a training step with cross entropy, and of one image in evaluation."""
        own = {"method", "params", "plugin", "seed", "milestones"}
        fields = spec.network.model_dump(exclude=own)
        slots = {"data": spec.data.model_dump(), "network": {**fields, "epochs": 3}}
        plain = TrialSpec.build(**slots)
        key = f"{plain.network_id} {threads}"
        if key not in self._batches:
            with on_threads(threads):
                self._batches[key] = timed.batch_s(plain, self.device)
        return self._batches[key]

    def heads(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate | None:
        """An epoch of a population on the bank of a spec's network; None as in ``network``."""
        shape = population_key(slots[0])
        key = f"{canonical_json(spec.data)} {spec.network.backbone} {shape} {len(slots)}"
        if key not in self._heads:
            measured = self._of_rows(spec, slots[0])
            if measured is not None:
                source = f"measured{self.where}, earlier rows in {self.out}"
                self._heads[key] = Rate(measured * len(slots), source)
            elif self.is_here:
                self._heads[key] = self.heads_not_measured(spec, slots)
            else:
                self._heads[key] = None
        return self._heads[key]

    def _of_rows(self, spec: TrialSpec, slot: HeadSlot) -> float | None:
        """Seconds a head and epoch of earlier heads of one shape on such a network."""
        seconds, epochs, shape = 0.0, 0, population_key(slot)
        for row in self._rows:
            alike = (row["data"], row["backbone"]) == (
                canonical_json(spec.data),
                spec.network.backbone,
            )
            if (
                not alike
                or not self.is_row_here(row)
                or row["head_method"] != slot.method
                or row["status"] != "done"
            ):
                continue
            with suppress(UserError):  # a spec of an earlier version
                head = json.loads(row["head"])
                like = TrialSpec.build(network={}, head={**head, "epochs": slot.epochs}).head
                if like is not None and population_key(like) == shape:
                    seconds += row["wall_s"] / row["population"]
                    epochs += head["epochs"]
        return seconds / epochs if epochs else None

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """Rows of heads in the folder, and in every folder of a sweep file."""
        names = ["data", "backbone", "head", "head_method", "status", "wall_s", "population"]
        names += ["gpu", "device"]
        folders = sorted({path.parent for path in self.out.glob("*/trials")} | {self.out})
        tables = [read_table(folder, "trials", keep=names.__contains__) for folder in folders]
        return [row for table in tables for row in table.to_pylist() if row["head"]]

    def is_row_here(self, row: Mapping[str, Any]) -> bool:
        """Whether a row was computed as it would be now."""
        del row
        return True

    def heads_not_measured(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """An epoch of a population of which no rows tell."""
        seconds = timed.heads_epoch_s(spec, slots, self.sizes(spec.data), self.device)
        return Rate(seconds, "from an epoch on random features now")

    def evaluation_s(self, spec: TrialSpec, is_search: bool) -> float:
        """Seconds of the metrics of a trial, and of its post-hoc fit."""
        sizes, classes = self.sizes(spec.data), spec.data.info.classes
        key = f"{canonical_json(spec.data)} {is_search}"
        seconds = self._once(key, lambda: timed.evaluation_s(classes, sizes, is_search))
        if spec.posthoc is None:
            return seconds
        slot = spec.posthoc
        key = f"{canonical_json(spec.data)} {canonical_json(slot)}"
        return seconds + self._once(key, lambda: timed.fit_s(slot, classes, sizes.calib))

    def shifted_s(self, spec: TrialSpec, images: int, draws: int, is_foreign: bool) -> float:
        """Seconds in which a trial is judged on a part of a shift set."""
        what = spec.data.info.classes, images, draws, is_foreign
        return self._once(f"shifted {what}", lambda: timed.shifted_s(*what))

    def intervals_s(self, spec: TrialSpec, draws: int) -> float:
        """Seconds of the bootstrap of a trial."""
        sizes, classes = self.sizes(spec.data), spec.data.info.classes
        key = f"{canonical_json(spec.data)} {draws} draws"
        return self._once(key, lambda: timed.intervals_s(classes, sizes, draws))

    def _once(self, key: str, time_it: Callable[[], float]) -> float:
        """What was timed; on one thread, as trials are evaluated."""
        if key not in self._judged:
            with on_threads(HEAD_THREADS):
                self._judged[key] = time_it()
        return self._judged[key]


def kind_of(spec: TrialSpec) -> tuple[DataSlot, NetworkSlot]:
    """What a network is, but for its seed and how long it is trained."""
    return spec.data, spec.network.model_copy(update={"seed": 0, "epochs": 1, "milestones": ()})
