"""What an epoch takes: from earlier results where there are any, else from a batch timed now."""

import json
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from tune_calib.data.base import info_of
from tune_calib.data.splits import Development, Sizes, load_development, load_test
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit
from tune_calib.engine.network import NetworkTrainer, build, predict
from tune_calib.engine.parts import in_parts
from tune_calib.engine.population import HEAD_THREADS, PopulationTrainer, population_key
from tune_calib.engine.precision import on_threads
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.errors import UserError
from tune_calib.places import Place
from tune_calib.registry import METHODS
from tune_calib.results import read_table
from tune_calib.slots.data import DataSlot
from tune_calib.slots.head import HeadSlot
from tune_calib.slots.network import NetworkSlot
from tune_calib.spec import TrialSpec, canonical_json

HEAD_SAMPLES = 2048
"""Features of the epoch by which heads are timed; an epoch of more takes longer in proportion."""


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


@dataclass(frozen=True)
class Images:
    """The splits of a data slot; of test the length alone."""

    development: Development
    test: int


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
    _images: dict[str, Images] = field(default_factory=dict)
    _networks: dict[str, Rate | None] = field(default_factory=dict)
    _batches: dict[str, tuple[float, float]] = field(default_factory=dict)
    _heads: dict[str, Rate | None] = field(default_factory=dict)

    def images(self, slot: DataSlot) -> Images:
        """The splits of a data slot."""
        key = canonical_json(slot)
        if key not in self._images:
            # A dry run writes nothing: the cache is read where there is one.
            cache = self.store.images
            where = (slot, self.data_root, cache if cache.exists() else None)
            self._images[key] = Images(load_development(*where), len(load_test(*where)))
        return self._images[key]

    def sizes(self, slot: DataSlot) -> Sizes:
        """Samples of each split of a data slot."""
        record = slot.import_record
        if record is not None:
            return Sizes(record.train, record.select, record.calib, record.test)
        images = self.images(slot)
        cut = images.development
        return Sizes(len(cut.train), len(cut.select), len(cut.calib), images.test)

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
        found = []
        for path in (self.store.root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            about = json.loads(path.read_text())
            with suppress(UserError):  # a spec of an earlier version
                is_alike = kind_of(TrialSpec.build(**json.loads(about["spec"]))) == kind
                if is_alike and self.ran_here(spec, about) and about["history"]:
                    found.append(about["train_s"] / len(about["history"]))
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
                self._batches[key] = _time_batch(
                    plain, self.images(spec.data).development, self.device
                )
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
        for row in _rows(self.out):
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

    def is_row_here(self, row: Mapping[str, Any]) -> bool:
        """Whether a row was computed as it would be now."""
        del row
        return True

    def heads_not_measured(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """An epoch of a population of which no rows tell."""
        sizes, record = self.sizes(spec.data), spec.data.import_record
        timed = min(sizes.train, HEAD_SAMPLES)
        width = build(spec, sizes.train)[0].width if record is None else record.width
        bank = _RandomBank(timed, sizes.select, width, info_of(spec.data).classes)
        # At least one epoch behind the one that warms up.
        long = [slot.model_copy(update={"epochs": slot.epochs + 1}) for slot in slots]
        with on_threads(HEAD_THREADS):
            part = in_parts(long, bank)[0]
            trainer = PopulationTrainer(part, bank, 0, self.device)
            next(trainer)
            share = sizes.train / timed * len(long) / len(part)
            seconds = _seconds(lambda: next(trainer)) * share
        return Rate(seconds, "from an epoch on random features now")


class _RandomBank(DevelopmentBank):
    """Features that stand for those of a network that is not trained yet."""

    def __init__(self, samples: int, selected: int, width: int, classes: int) -> None:
        self.about = {"train_views": 1, "accuracy": {"train": 1.0, "select": 1.0}}
        chance = torch.Generator().manual_seed(0)

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


def kind_of(spec: TrialSpec) -> tuple[DataSlot, NetworkSlot]:
    """What a network is, but for its seed and how long it is trained."""
    return spec.data, spec.network.model_copy(update={"seed": 0, "epochs": 1, "milestones": ()})


def _time_batch(spec: TrialSpec, splits: Development, device: torch.device) -> tuple[float, float]:
    """Train three epochs of one batch; the first one warms up."""
    batch = torch.arange(min(spec.network.batch_size, len(splits.train), len(splits.select)))
    small = Development(
        splits.train.take(batch), splits.select.take(batch), splits.calib.take(batch[:1])
    )
    trainer = NetworkTrainer(spec, small, device)
    next(trainer)
    whole = min(_seconds(lambda: next(trainer)) for _ in range(2))
    judge = _seconds(lambda: predict(trainer.method, trainer.network, trainer.select, trainer.info))
    return max(whole - judge, 0.0), judge / len(batch)


def _seconds(work: Any) -> float:
    started = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - started


def _rows(out: Place) -> list[dict[str, Any]]:
    """Rows of every folder of a sweep."""
    names = ["data", "backbone", "head", "head_method", "status", "wall_s", "population"]
    names += ["gpu", "device"]
    folders = sorted(path.parent for path in out.glob("*/trials"))
    tables = [read_table(folder, "trials").select(names) for folder in folders]
    return [row for table in tables for row in table.to_pylist()]
