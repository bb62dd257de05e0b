"""The feature bank: features, logits and labels of every split of one trained network.

Each split, or view of a split, is one uncompressed Arrow file, memory-mapped by every head trial.
"""

import copy
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tune_calib.data.augment import crop_flip, draw_views
from tune_calib.data.base import Split
from tune_calib.data.rules import draw_held_out
from tune_calib.data.splits import Development
from tune_calib.determinism import child_seed
from tune_calib.engine.network import measure_network
from tune_calib.engine.predict import (
    ImageCounter,
    Outputs,
    TrainedNetwork,
    evaluation_batch,
    output_chunks,
)
from tune_calib.engine.tensors import generator
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import opened, write_folder
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.methods import Params
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, content_hash


class BankKey(Params):
    """Everything that determines a bank: equal keys mean the same bank."""

    network_id: str  # the trained network
    views: int  # augmented views of the training split; 0 means one clean view
    bn_mode: str  # mode of the extractor's batch normalisation

    @property
    def identity(self) -> str:
        return content_hash(self)


def bank_key(spec: TrialSpec, head: HeadSlot | None) -> BankKey:
    """Return the key of the bank on which a head is trained, or of the clean bank without one."""
    if head is None:
        return BankKey(network_id=spec.network_id, views=0, bn_mode="eval")
    # Unused views are left out of the key, so that heads that differ only in them share a bank.
    views = head.views if head.augment == "standard" else 0
    return BankKey(network_id=spec.network_id, views=views, bn_mode=head.bn_mode)


class StoredSamples:
    """Tensors of the samples of a split: (N,), or with the samples in the last axis but one."""

    labels: Tensor
    groups: Tensor | None
    image_ids: Tensor | None


S = TypeVar("S", bound=StoredSamples)


def draw_splits(splits: Mapping[str, S], spec: TrialSpec) -> dict[str, S]:
    """Return the splits of a trial: those of its network, with its own ``select`` and ``calib``."""
    if spec.data == spec.network_data:
        return dict(splits)
    stored = {}
    for name, tensor in vars(splits["select"]).items():
        if tensor is not None:
            axis = -1 if tensor.ndim == 1 else -2
            stored[name] = axis, torch.cat([tensor, getattr(splits["calib"], name)], axis)
    labels = splits["select"].labels, splits["calib"].labels
    groups = stored["groups"][1] if "groups" in stored else None
    image_ids = stored["image_ids"][1] if "image_ids" in stored else None
    drawn = dict(splits)
    both_places = draw_held_out(spec.data, spec.is_redrawn, *labels, groups, image_ids)
    for part, places in zip(("select", "calib"), both_places, strict=True):
        tensors = {}
        for name, (axis, tensor) in stored.items():
            tensors[name] = tensor.index_select(axis, places.to(tensor.device))
        drawn[part] = type(splits[part])(**tensors)
    return drawn


@dataclass(frozen=True)
class FeatureSplit(StoredSamples):
    """Features (N, D) and logits (N, C) of the network's own head, float32, and labels (N,)."""

    features: Tensor
    logits: Tensor
    labels: Tensor
    groups: Tensor | None = None
    image_ids: Tensor | None = None


class DevelopmentBank:
    """A bank on disk without its test split, for searches; raises if the bank is damaged."""

    drawn_for: TrialSpec | None = None  # the trial whose select and calib it returns

    def __init__(self, folder: AnyPath) -> None:
        self.folder, self.manifest = opened(folder)

    def for_trial(self, spec: TrialSpec) -> Self:
        bank = copy.copy(self)
        bank.drawn_for = spec
        return bank

    @property
    def views(self) -> int:
        """Return the number of views of the training split, or 0 in a bank without it."""
        return int(self.manifest["train_views"])

    @property
    def has_test(self) -> bool:
        return bool(self.manifest["has_test"])

    @property
    def has_select(self) -> bool:
        """Return whether the bank holds ``select``; an import may have none."""
        return bool(self.manifest.get("imported", {}).get("select", True))

    def train(self, view: int = 0) -> FeatureSplit:
        return read_split(self.folder / f"train-{view:03d}.arrow")

    def select(self) -> FeatureSplit:
        return self._held_out("select")

    def calib(self) -> FeatureSplit:
        return self._held_out("calib")

    def _held_out(self, wanted: str) -> FeatureSplit:
        if self.drawn_for is None or not self.has_select:
            return read_split(self.folder / f"{wanted}.arrow")
        splits = {}
        for name in ("select", "calib"):
            splits[name] = read_split(self.folder / f"{name}.arrow")
        return draw_splits(splits, self.drawn_for)[wanted]

    def evaluated(self) -> dict[str, FeatureSplit]:
        splits = {"select": self.select()} if self.has_select else {}
        return {**splits, "calib": self.calib()}

    def own_head(self) -> tuple[Tensor, Tensor]:
        """Return weight (C, D) and bias (C,) of the network's own head."""
        head = _read_arrow(self.folder / "head.arrow")
        return head["weight"], head["bias"].squeeze(1)


class FeatureBank(DevelopmentBank):
    def test(self) -> FeatureSplit:
        return read_split(self.folder / "test.arrow")

    def evaluated(self) -> dict[str, FeatureSplit]:
        return {**super().evaluated(), "test": self.test()}


def build_bank(
    folder: AnyPath,
    key: BankKey,
    trained: TrainedNetwork,
    info: DatasetInfo,
    development: Development,
    test: Split | None,
    with_train: bool = True,
) -> None:
    """Write the features of a trained network, and measure it if its manifest is still empty."""
    views = max(1, key.views) if with_train else 0
    manifest = {"key": key.model_dump(), "train_views": views, "has_test": test is not None}

    def fill(path: Path) -> None:
        started = time.monotonic()
        train, is_measured = development.train, bool(trained.manifest)
        clean = {"select": (development.select, info), "calib": (development.calib, info)}
        if test is not None:  # a search has none
            clean["test"] = (test, info.of_test())
        passes = views if is_measured else max(1, views)
        counter = ImageCounter(passes * len(train) + sum(len(split) for split, _ in clean.values()))
        # Train first: with bn_mode = train, its views update the statistics used for the other
        # splits.
        if passes:
            for view, outputs in enumerate(train_outputs(key, trained, info, train)):
                if not with_train:
                    outputs = ((features[:, :0], logits) for features, logits in outputs)
                counted = counter.count(outputs)
                write_split(path / f"train-{view:03d}.arrow", counted, train.labels)
        for name, (split, normalised_by) in clean.items():
            images = split.images.split(evaluation_batch(info))
            outputs = output_chunks(trained.method, trained.network, images, normalised_by)
            counted = counter.count(outputs)
            write_split(path / f"{name}.arrow", counted, split.labels, image_ids=split.image_ids)
        measured = trained.manifest
        if not is_measured:
            predictions = {}
            for name, file in (("train", "train-000"), ("select", "select")):
                labels = getattr(development, name).labels
                logits = read_split(path / f"{file}.arrow").logits
                predictions[name] = logits.to(labels.device), labels
            measured = measure_network(predictions)
            if not with_train:
                (path / "train-000.arrow").unlink()
        # So that heads (gamma = val_ratio) and the network check need only the bank.
        manifest["accuracy"], manifest["regime"] = measured["accuracy"], measured["regime"]
        head = trained.network.head
        write_arrow(path / "head.arrow", {"weight": head.weight, "bias": head.bias[:, None]})
        # Known only now; the manifest is written after the files.
        manifest["made_s"] = time.monotonic() - started

    write_folder(folder, fill, manifest)


def train_outputs(
    key: BankKey, trained: TrainedNetwork, info: DatasetInfo, train: Split
) -> Iterator[Iterator[Outputs]]:
    """Yield features and logits of each view of the training split, in chunks."""
    for view in range(max(1, key.views)):
        images = _view(train, info, key, view)
        yield output_chunks(trained.method, trained.network, images, info, key.bn_mode)


def _view(train: Split, info: DatasetInfo, key: BankKey, view: int) -> Iterator[Tensor]:
    # The draws depend on the chunk size: a different size would give different views under the same
    # key.
    chunks = train.images.split(evaluation_batch(info))
    if key.views == 0:
        yield from chunks
        return
    # Seeded by the network's identity (a hexadecimal number), since all heads of the network share
    # the views.
    chance = generator(child_seed(int(key.network_id, 16), "view", view))
    for chunk in chunks:
        draws = draw_views([len(chunk)], info.padding, info.flip, chance, info.spare)
        yield crop_flip(chunk, draws.to(chunk.device))


def read_split(path: Path) -> FeatureSplit:
    columns = _read_arrow(path)
    labels = columns["label"].squeeze(1).long()
    logits = columns["logits"]
    groups = columns["group"].squeeze(1) if "group" in columns else None
    image_ids = columns["image_id"].squeeze(1) if "image_id" in columns else None
    return FeatureSplit(columns.get("features", logits[:, :0]), logits, labels, groups, image_ids)


def write_split(
    path: Path,
    outputs: Iterable[Outputs],
    labels: Tensor,
    groups: Tensor | None = None,
    image_ids: Tensor | None = None,
) -> None:
    """Write features (of width 0 for imported logits) and logits, given in chunks."""
    with TemporaryFile(dir=path.parent) as features, TemporaryFile(dir=path.parent) as logits:
        widths, written = (0, 0), 0
        for chunk in outputs:
            widths = (chunk[0].shape[1], chunk[1].shape[1])
            written += len(chunk[0])
            for values, file in zip(chunk, (features, logits), strict=True):
                file.write(values.float().cpu().contiguous().numpy().data)
        if written != len(labels):  # a memory map would pad a file that is too short with zeros
            raise ValueError(f"got {written} outputs for {len(labels)} samples")
        # Mapped, since a view may be larger than memory. The file has a single batch.
        columns, files = {}, {"features": features, "logits": logits}
        for (name, file), width in zip(files.items(), widths, strict=True):
            if width:  # an empty file cannot be mapped
                numbers = np.memmap(file, np.float32, "r+", shape=(len(labels), width))
                columns[name] = torch.from_numpy(numbers)
        by_sample = {"label": labels, "group": groups, "image_id": image_ids}
        for name, tensor in by_sample.items():
            if tensor is not None:
                columns[name] = tensor[:, None]
        write_arrow(path, columns)


def write_arrow(path: Path, columns: dict[str, Tensor]) -> None:
    arrays = {}
    for name, tensor in columns.items():
        values = tensor.detach().cpu().contiguous().numpy()
        # Fixed-size lists in one uncompressed batch: the mapped memory is the tensor itself, so
        # reading needs no copy and no decoding.
        arrays[name] = pa.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])
    table = pa.table(arrays)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_arrow(path: Path) -> dict[str, Tensor]:
    with pa.memory_map(str(path)) as source:
        # The map outlives the closed file, because the buffers of the batch refer to it.
        batch = pa.ipc.open_file(source).get_batch(0)
    tensors = {}
    for name in batch.schema.names:
        column = batch.column(name)
        values = column.flatten().to_numpy(zero_copy_only=True)
        with warnings.catch_warnings():
            # torch warns that the map is read-only, but nothing writes to a bank.
            warnings.simplefilter("ignore", UserWarning)
            tensors[name] = torch.from_numpy(values.reshape(len(column), -1))
    return tensors
