"""The classifier of a trial: its head and its post-hoc transform, stored as an artifact.

If it is absent, e.g. for a suggestion of a search, the head is trained again on the feature bank,
which gives the same numbers.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import ensure_bank
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit, bank_key
from tune_calib.engine.evaluate import SplitLogits, features_for, fit_transform
from tune_calib.engine.head_batch import HEAD_THREADS, HeadBatchTrainer, logits_of, restore_tensors
from tune_calib.engine.machine import on_threads
from tune_calib.engine.tensors import nest, read_tensors, unnest, write_tensors
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.store import Store, opened
from tune_calib.methods._base import HeadContext, HeadMethod, PostHocMethod
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import column
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

KIND = "classifiers"


class Classifier(nn.Module):
    """A map from features and logits of a frozen network to calibrated logits.

    ``tensors`` are those of ``tensors_of_trial``; ``select`` are metrics by which it is verified.
    ``head`` and ``transform`` are built from the tensors, and again after they change.
    """

    def __init__(
        self,
        head: HeadSlot | None,
        posthoc: PostHocSlot | None,
        tensors: Mapping[str, Tensor],
        select: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.slots = head, posthoc
        for name, tensor in tensors.items():
            # torch separates modules by dots; names of methods contain no slashes.
            self.register_buffer(name.replace(".", "/"), tensor.detach().clone())
        self.select = dict(select or {})

    @cached_property
    def head(self) -> HeadMethod | None:
        slot = self.slots[0]
        if slot is None:
            return None
        tensors = unnest("head", self.tensors)
        facts = unnest("context", tensors)
        weight, ratio = facts["weight"], float(facts["val_ratio"])
        classes, width = weight.shape
        context = HeadContext(
            width, classes, slot.epochs, weight, facts["bias"], ratio, weight.device
        )
        method: HeadMethod = METHODS[slot.method].implementation([slot], context)
        restore_tensors(method, tensors)
        for weights in method.parameters.values():
            weights.requires_grad_(False)
        return method

    @cached_property
    def transform(self) -> PostHocMethod | None:
        slot = self.slots[1]
        if slot is None:
            return None
        method: PostHocMethod = METHODS[slot.method].implementation(slot.params)
        method.load_state(unnest("posthoc", self.tensors))
        return method

    def _forget(self) -> None:
        vars(self).pop("head", None)
        vars(self).pop("transform", None)

    def _apply(self, *args: Any, **options: Any) -> Any:
        self._forget()
        return super()._apply(*args, **options)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._forget()
        super()._load_from_state_dict(*args, **options)

    @torch.no_grad()
    def forward(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return calibrated logits (1, N, C) in float64, as ``evaluate_one`` uses them."""
        return self.calibrated(self.uncalibrated(features, logits), features)

    def calibrated(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        """Return logits (1, N, C) after the transform, float64; NaN for rows with NaN or inf."""
        device = next((buffer.device for buffer in self.buffers()), logits.device)
        calibrated = logits = logits.double().to(device)
        if self.transform is not None:
            inputs = features_for(self.transform, features, logits)
            calibrated = self.transform.transform(logits, *inputs)
        # Steps and the largest of several numbers would turn such a row into a confident class.
        return calibrated.where(logits.isfinite().all(-1, keepdim=True), torch.nan)

    @torch.no_grad()
    def uncalibrated(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return logits (1, N, C) of the head, float32, before the transform."""
        return logits.unsqueeze(0) if self.head is None else logits_of(self.head, features)

    def logits(self, split: FeatureSplit) -> SplitLogits:
        calibrated = self(split.features, split.logits)
        return SplitLogits(calibrated, split.labels.to(calibrated.device))

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name.replace("/", "."): buffer for name, buffer in self.named_buffers()}

    @property
    def width(self) -> int | None:
        return None if self.head is None else self.head.context.width


def tensors_of_trial(
    trainer: HeadBatchTrainer | None, k: int, transform: PostHocMethod | None
) -> dict[str, Tensor]:
    """Return all tensors (K = 1) for the predictions of head ``k`` and a transform."""
    tensors: dict[str, Tensor] = {}
    if trainer is not None:
        context = trainer.method.context
        facts = {"weight": context.weight, "bias": context.bias}
        facts["val_ratio"] = torch.tensor(context.val_ratio, dtype=torch.float64)
        tensors = nest("head", {**trainer.selected(k), **nest("context", facts)})
    if transform is not None:
        tensors |= nest("posthoc", transform.state())
    return tensors


def is_storable(spec: TrialSpec) -> bool:
    return spec.posthoc is None or bool(METHODS[spec.posthoc.method].implementation.is_storable)


def store_classifier(
    store: Store, spec: TrialSpec, tensors: Mapping[str, Tensor], metrics: Mapping[str, float]
) -> None:
    """Write the classifier of a finished trial and its metrics on ``select``, if possible."""
    if not tensors or not is_storable(spec):  # without tensors, it is the network itself
        return
    folder = store.folder(KIND, spec.hash)
    select = {name: value for name, value in metrics.items() if name.startswith("select/")}
    manifest = {"spec": spec.canonical_json(), "select": select}
    # An existing classifier stays, like all artifacts, because rows of an earlier run belong to it.
    # A trial must not lose its row if the store is read-only or unreachable: the classifier can be
    # created again.
    with suppress(OSError, UserError):
        store.ensure(
            folder, "classifier", opened, lambda _: write_tensors(folder, dict(tensors), manifest)
        )


def ensure_classifier(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> Classifier:
    if spec.head is None and spec.posthoc is None:
        return Classifier(None, None, {})
    with suppress(DamagedFileError):
        tensors, manifest = read_tensors(store.folder(KIND, spec.hash))
        return Classifier(spec.head, spec.posthoc, tensors, manifest["select"]).to(device)
    classifier = train_again(spec, store, development, device)
    store_classifier(store, spec, classifier.tensors, classifier.select)
    return classifier


def judged(classifier: Classifier, bank: DevelopmentBank) -> dict[str, float]:
    """Return the metrics of a classifier on ``select``, as ``select/<name>``; {} without it."""
    if not bank.has_select:
        return {}
    select = classifier.logits(bank.select())
    scores = evaluate(select.logits, select.labels, dtype=OUTPUTS)
    return {column("select", name): float(score) for name, score in scores.items()}


def train_again(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> Classifier:
    """Train the head again, even if it is stored, and return the classifier without storing it."""
    bank = open_bank(spec, store, development, device).for_trial(spec)
    trainer = transform = None
    if spec.head is not None:
        with on_threads(HEAD_THREADS):
            trainer = HeadBatchTrainer([spec.head], bank, spec.network.seed, device)
            for _ in trainer:
                pass
    if spec.posthoc is not None:
        head = Classifier(spec.head, None, tensors_of_trial(trainer, 0, None)).to(device)
        calib = bank.calib()
        logits = head.uncalibrated(calib.features, calib.logits)
        labels = calib.labels.to(logits.device)
        split = SplitLogits(logits, labels, features=calib.features)
        transform = fit_transform(spec.posthoc, split)
    tensors = tensors_of_trial(trainer, 0, transform)
    classifier = Classifier(spec.head, spec.posthoc, tensors).to(device)
    if not is_storable(spec):
        classifier.transform = transform
    classifier.select = judged(classifier, bank)
    return classifier


def open_bank(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> DevelopmentBank:
    """Return the bank of a trial, built if it is absent, with training data if it has a head."""
    key, has_head = bank_key(spec, spec.head), spec.head is not None
    return ensure_bank(
        DevelopmentBank, spec, key, store, lambda: (development(), None), device, has_head
    )
