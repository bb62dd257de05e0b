"""Networks, their per-sample records and feature banks in the store, each made by one process."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
import torch
from filelock import FileLock
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.bank import BankKey, DevelopmentBank, FeatureBank, bank_key, build_bank
from tune_calib.engine.execution import Tensors, describe_execution
from tune_calib.engine.imports import open_import
from tune_calib.engine.machine import machine
from tune_calib.engine.network import NetworkTrainer, build, measure_network
from tune_calib.engine.pools import build_pool_bank
from tune_calib.engine.predict import TrainedNetwork, predict_splits
from tune_calib.engine.steps import NO_WATCH, Stopwatch
from tune_calib.engine.tensors import nest, read_tensors, unnest, write_tensors
from tune_calib.engine.weights import start_from
from tune_calib.errors import DamagedFileError, RefusedError, UserError
from tune_calib.files.paths import remove_folder
from tune_calib.files.store import Store, artifact_manifest, read_or_remove
from tune_calib.progress import report_progress
from tune_calib.results.tables import SCHEMAS
from tune_calib.spec.trial import TrialSpec

_Bank = TypeVar("_Bank", bound=DevelopmentBank)

CHECKPOINT_S = 30
"""Seconds between checkpoints. A training that is killed repeats the epochs since the last one."""


class NetworkTraining:
    """Training of a network from its last checkpoint to its artifact, under its lock.

    ``open_bank`` gives the bank of the trained network and thus the numbers in the artifact.
    """

    def __init__(
        self,
        spec: TrialSpec,
        store: Store,
        development: Development,
        device: torch.device,
        open_bank: Callable[[TrainedNetwork], DevelopmentBank] | None = None,
    ) -> None:
        self.spec, self.store, self.open_bank = spec, store, open_bank
        self.identity = spec.network_id
        self.artifact = store.folder("networks", self.identity)
        self.checkpoint = store.folder("checkpoints", self.identity)
        self.history: list[dict[str, float]] = []
        self.train_s = 0.0
        self.saved_at = time.monotonic()
        self.trainer: NetworkTrainer | None = None
        self._lock: FileLock | None = None
        self.fingerprint = development.fingerprint()
        try:
            self._start(development, device)
        except Exception:
            self.close()
            raise

    def _start(self, development: Development, device: torch.device) -> None:
        # Try without the lock first: a complete network may be in a read-only store, where not even
        # a lock file can be written.
        manifest = None
        with suppress(DamagedFileError):
            manifest = artifact_manifest(self.artifact)
        if manifest is None:
            report_progress("waiting for the network, which another process may be training")
            self._lock = self.store.lock("network", self.identity)
            self._lock.acquire()
            # Check again under the lock: its last holder may have finished the network meanwhile.
            manifest = read_or_remove(self.artifact, artifact_manifest)
        checkpoint = None
        if manifest is None:
            checkpoint = read_or_remove(self.checkpoint, read_tensors)
        # A spec names a data set, not a copy of it. Without this check, networks, banks and rows
        # from two copies would have the same identity.
        for record in filter(None, (manifest, checkpoint and checkpoint[1])):
            if record["data"] != self.fingerprint:
                raise RefusedError(
                    f"`store` {self.store.root} contains networks that were trained on another "
                    f"copy of {self.spec.data.dataset} than that in `data_root`; name another "
                    "`store`, or the `data_root` of that copy"
                )
        if manifest is not None:
            return
        self.trainer = NetworkTrainer(self.spec, development, device)
        if self.spec.network.weights is not None:
            start_from(self.trainer.network, self.spec.network, self.store)
        if checkpoint is not None:
            tensors, manifest = checkpoint
            self.trainer.load_state(tensors, manifest)
            self.history, self.train_s = manifest["history"], manifest["train_s"]
        report_progress("epoch", len(self.history), self.spec.network.epochs, {})

    def step(self, watch: Stopwatch = NO_WATCH) -> dict[str, float] | None:
        """Train one epoch; return its report, or None after writing the artifact."""
        if self.trainer is None:
            return None
        started = time.monotonic()
        self.trainer.watch = watch
        report = next(self.trainer, None)
        if report is None:
            self._finish(self.trainer)
            return None
        self.train_s += time.monotonic() - started
        self.history.append(report)
        with watch.phase("checkpoint"):
            # Samples before the checkpoint: a run that is killed in between repeats the epoch and
            # writes the same records again. In the opposite order they would be lost.
            write_samples(self.store, self.identity, len(self.history), self.trainer.samples)
            is_last = len(self.history) == self.spec.network.epochs
            if is_last or time.monotonic() - self.saved_at >= CHECKPOINT_S:
                self.save()
        report_progress("epoch", len(self.history), self.spec.network.epochs, report)
        return report

    def save(self) -> None:
        if self.trainer is None:
            return
        tensors, manifest = self.trainer.state()
        progress = {"history": self.history, "data": self.fingerprint, "train_s": self.train_s}
        write_tensors(self.checkpoint, tensors, manifest | progress)
        self.saved_at = time.monotonic()

    def _finish(self, trainer: NetworkTrainer) -> None:
        # First, because it loads the selected epoch into the network, whose accuracy is measured
        # below.
        weights = trainer.selected()
        trained = TrainedNetwork(trainer.network, trainer.method, {})
        if self.open_bank is not None:
            measured: Mapping[str, Any] = self.open_bank(trained).manifest
        else:
            train, select = (trainer.train, trainer.info), (trainer.select, trainer.info)
            measured = measure_network(predict_splits(trained, {"train": train, "select": select}))
        manifest = {
            "spec": self.spec.canonical_json(),
            "epoch": trainer.best.epoch + 1,
            "history": self.history,
            "data": self.fingerprint,
            "samples": len(trainer.train),
            # Used in forecasts of other runs.
            "train_s": self.train_s,
            "threads": torch.get_num_threads(),
            "machine": machine(),
            "execution": describe_execution(trainer.execution, trainer.executor),
            "device": trainer.device.type,
            "accuracy": measured["accuracy"],
            "regime": measured["regime"],
        }
        # On a remote store, another node may have been faster, since locks are local to a machine.
        if not self.store.holds("networks", self.identity):
            write_tensors(self.artifact, weights, manifest)
        # Last: a run that dies before this line creates the artifact again from the checkpoint.
        remove_folder(self.checkpoint)
        self.trainer = None

    def close(self) -> None:
        self.trainer = None
        if self._lock is not None:
            self._lock.release()


def load_network(spec: TrialSpec, store: Store, device: torch.device) -> TrainedNetwork:
    if spec.members:
        raise UserError("this needs a single network, which a pool does not have; use its members")
    if spec.data.imported is not None:
        raise UserError("this needs a network, which imported data do not have")
    tensors, manifest = read_tensors(store.folder("networks", spec.network_id))
    # Some methods store a number for each sample. The number of samples is in the manifest, so that
    # no images are read.
    network, method = build(spec, manifest["samples"])
    network.load_state_dict(unnest("network", tensors))
    method.load_state_dict(unnest("method", tensors))
    return TrainedNetwork(network.to(device), method.to(device), manifest)


def ensure_bank(
    kind: type[_Bank],
    spec: TrialSpec,
    key: BankKey,
    store: Store,
    splits: Callable[[], tuple[Development, Split | None]],
    device: torch.device,
    with_train: bool = True,
    trained: TrainedNetwork | None = None,
) -> _Bank:
    """Return the bank of a network, which may not be in the store yet; build what it lacks.

    A ``DevelopmentBank`` has no test split. ``with_train`` is for the training of heads.
    """
    pool = spec.network.pool
    if spec.data.imported is not None and pool is None:
        return open_import(kind, spec.data.imported, store)

    def suffices(bank: _Bank) -> bool:
        # The bank of an earlier training may differ in its last digits.
        if trained is not None and not spec.network.is_frozen:
            return False
        return (bank.views > 0 or not with_train) and (bank.has_test or kind is not FeatureBank)

    folder = store.folder("banks", key.identity)

    def make(old: _Bank | None) -> None:
        if pool is not None:
            banks = []
            for member in spec.members:
                member_key = bank_key(member, None)
                bank = ensure_bank(
                    kind, member, member_key, store, splits, device, with_train=False
                )
                banks.append(bank)
            build_pool_bank(folder, key, pool, banks)
            return
        development, test = splits()
        development = development.to(device)
        if test is not None:
            test = test.to(device)
        # A bank with a training split is replaced by one with it, because heads use it.
        has_train = with_train or (old is not None and old.views > 0)
        network = trained or load_network(spec, store, device)
        build_bank(folder, key, network, spec.data.info, development, test, with_train=has_train)

    return store.ensure(folder, "bank", kind, make, suffices)


def has_network(spec: TrialSpec, store: Store) -> bool:
    """Return whether the store has a network, or all networks of a pool; imports have none."""
    if spec.members:
        return all(has_network(member, store) for member in spec.members)
    return spec.data.imported is not None or store.holds("networks", spec.network_id)


def write_samples(store: Store, network_id: str, epoch: int, samples: dict[str, Tensors]) -> None:
    """Write the results of ``NetworkMethod.samples_seen`` in an epoch (1-based), by split."""
    tensors: dict[str, Tensor] = {}
    for split, record in samples.items():
        if not record:
            continue
        correct = record["correct"]
        # Shuffled batches list their samples; a split evaluated as a whole is in its own order.
        sample = record.get("sample", torch.arange(len(correct), device=correct.device))
        order = sample.argsort()
        # Norms are unbounded, and float16 would turn large values into infinity.
        largest = torch.finfo(torch.float16).max
        columns = {
            "sample": sample[order].int(),
            "gate": record["gate"][order].round().to(torch.int8),
            "indicator": record["indicator"][order].clamp(-largest, largest).half(),
            "confidence": record["confidence"][order].half(),
            "correct": correct[order],
        }
        tensors |= nest(split, columns)
    if tensors:
        write_tensors(store.folder("samples", network_id) / f"{epoch:04d}", tensors, {})


def read_samples(store: Store, network_id: str, epochs: int, spec_hash: str) -> pa.Table:
    schema, folder = SCHEMAS["samples"], store.folder("samples", network_id)
    tables = [schema.empty_table()]
    if not folder.exists():
        epochs = 0
    for epoch in range(1, epochs + 1):
        tensors, _ = read_tensors(folder / f"{epoch:04d}")
        for split in sorted({name.partition(".")[0] for name in tensors}):
            columns = {name: tensor.numpy() for name, tensor in unnest(split, tensors).items()}
            size = len(columns["correct"])
            for name, value in (("spec_hash", spec_hash), ("split", split), ("epoch", epoch)):
                columns[name] = pa.repeat(value, size)
            tables.append(pa.table(columns).select(schema.names).cast(schema))
    return pa.concat_tables(tables).unify_dictionaries()
