"""The classifier of a trial: its head and its post-hoc transform, kept in the store.

``classifiers/<spec hash>`` holds the tensors that predictions follow from. A finished trial of a
ladder, a comparison or an evaluation writes it; where it is absent, e.g. of a suggestion of a
search, the head is trained once more on the feature bank, which gives the same numbers.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import ensure_development_bank
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit, bank_key
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.engine.population import (
    HEAD_THREADS,
    PopulationTrainer,
    logits_of,
    take_up,
    tensors_of,
)
from tune_calib.engine.precision import on_threads
from tune_calib.engine.store import Store, artifact_manifest, read_or_remove
from tune_calib.engine.tensors import nest, read_tensors, unnest, write_tensors
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.methods._base import HeadContext, HeadMethod, PostHocMethod
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import column
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.spec.trial import TrialSpec

KIND = "classifiers"

# Of what is kept: another number is of another version, and the head is trained again.
LAYOUT = 1

_Method = TypeVar("_Method")


class _Part(nn.Module, Generic[_Method]):
    """A method and the tensors (K = 1) that it predicts by, which are buffers.

    They move, are loaded and are saved as those of any module; the method is made of them anew
    when they have.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            # A dot parts modules in torch; no name of a method has a slash.
            self.register_buffer(name.replace(".", "/"), tensor.detach().clone())
        self._made: _Method | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors under their names."""
        return {name.replace("/", "."): buffer for name, buffer in self.named_buffers()}

    @property
    def method(self) -> _Method:
        """Made of the tensors as they are now."""
        if self._made is None:
            self._made = self._make(self.tensors)
        return self._made

    @abstractmethod
    def _make(self, tensors: dict[str, Tensor]) -> _Method:
        """Return the method that predicts by the tensors."""

    def _apply(self, *args: Any, **options: Any) -> Any:
        self._made = None
        return super()._apply(*args, **options)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._made = None
        super()._load_from_state_dict(*args, **options)


class HeadPart(_Part[HeadMethod]):
    """One head at its selected epoch, made of ``tensors_of_trial`` without their prefix."""

    def __init__(self, slot: HeadSlot, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.slot = slot

    def _make(self, tensors: dict[str, Tensor]) -> HeadMethod:
        weight = tensors["context.weight"]
        context = HeadContext(
            width=weight.shape[1],
            classes=weight.shape[0],
            epochs=self.slot.epochs,
            weight=weight,
            bias=tensors["context.bias"],
            val_ratio=float(tensors["context.val_ratio"]),
            device=weight.device,
        )
        method: HeadMethod = METHODS[self.slot.method].implementation([self.slot], context)
        take_up(method, tensors)
        for weights in method.parameters.values():
            weights.requires_grad_(False)
        return method

    def refuse_incomplete(self) -> None:
        """Raise a KeyError for tensors of another method: some would stay as they are drawn."""
        given = {name for name in self.tensors if not name.startswith("context.")}
        if other := sorted(given ^ tensors_of(self.method).keys()):
            raise KeyError(other[0])

    def forward(self, features: Tensor, first: int = 0) -> Tensor:
        """Return logits (1, N, C) of features (N, D) that follow each other from a place on."""
        return logits_of(self.method, features, self.tensors["context.weight"].device, first)


class TransformPart(_Part[PostHocMethod]):
    """A fitted post-hoc transform, made of its ``state``."""

    def __init__(self, slot: PostHocSlot, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.slot = slot

    def _make(self, tensors: dict[str, Tensor]) -> PostHocMethod:
        method: PostHocMethod = METHODS[self.slot.method].implementation(self.slot.params)
        method.load_state(tensors)
        return method

    def forward(self, logits: Tensor) -> Tensor:
        """Return calibrated logits (1, N, C), on the device of the transform."""
        device = next((buffer.device for buffer in self.buffers()), logits.device)
        calibrated: Tensor = self.method.transform(logits.to(device))
        return calibrated


class Classifier(nn.Module):
    """A map from features and logits of a frozen network to calibrated logits.

    Args:
        head: slot of the head; None is the network's own.
        posthoc: slot of the transform, if there is one.
        tensors: as ``tensors_of_trial`` gives them.
        select: metrics of its trial, ``select/<name>``, by which it is recognised.
    """

    def __init__(
        self,
        head: HeadSlot | None,
        posthoc: PostHocSlot | None,
        tensors: Mapping[str, Tensor],
        select: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        own = dict(tensors)
        self.head = HeadPart(head, unnest("head", own)) if head else None
        self.transform = TransformPart(posthoc, unnest("posthoc", own)) if posthoc else None
        self.select = dict(select or {})

    @torch.no_grad()
    def forward(self, features: Tensor, logits: Tensor, first: int = 0) -> Tensor:
        """Return calibrated logits (1, N, C) in float64, as ``evaluate_one`` judges them.

        Args:
            features: (N, D), of samples that follow each other in a split; a head reads them.
            logits: (N, C) of the network's own head, which is read where there is no other.
            first: position of the first sample in its split, which random draws depend on.
        """
        own = logits.unsqueeze(0) if self.head is None else self.head(features, first)
        return own.double() if self.transform is None else self.transform(own.double())

    def logits(self, split: FeatureSplit, first: int = 0) -> SplitLogits:
        """Return calibrated logits of a split of a bank, or of a part of one."""
        calibrated = self(split.features, split.logits, first)
        return SplitLogits(calibrated, split.labels.to(calibrated.device))

    @torch.no_grad()
    def uncalibrated(self, split: FeatureSplit) -> Tensor:
        """Return logits (1, N, C) of the head, float32, before the transform."""
        if self.head is None:
            return split.logits.unsqueeze(0)
        logits: Tensor = self.head(split.features)
        return logits

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return what ``tensors_of_trial`` gave."""
        parts = {"head": self.head, "posthoc": self.transform}
        return {
            k: t
            for name, part in parts.items()
            if part
            for k, t in nest(name, part.tensors).items()
        }


def tensors_of_trial(
    trainer: PopulationTrainer | None, k: int, transform: PostHocMethod | None
) -> dict[str, Tensor]:
    """Return all that the classifier of a trial predicts by, K = 1.

    Args:
        trainer: a finished population; None where the head is the network's own.
        k: which of its heads.
        transform: fitted on the logits of that head, K = 1.
    """
    tensors: dict[str, Tensor] = {}
    if trainer is not None:
        context = trainer.method.context
        known = {
            "weight": context.weight,
            "bias": context.bias,
            "val_ratio": torch.tensor(context.val_ratio, dtype=torch.float64),
        }
        tensors = nest("head", {**trainer.selected(k), **nest("context", known)})
    return {**tensors, **nest("posthoc", transform.state() if transform is not None else {})}


def store_classifier(
    store: Store, spec: TrialSpec, tensors: Mapping[str, Tensor], metrics: Mapping[str, float]
) -> None:
    """Keep the classifier of a finished trial, with its metrics on ``select``, in the store.

    It can be made again: where nothing can be written, nothing is. Without tensors the network
    says it all.
    """
    if not tensors:
        return
    folder = store.folder(KIND, spec.hash)
    about = {
        "layout": LAYOUT,
        "spec": spec.canonical_json(),
        "select": {name: value for name, value in metrics.items() if name.startswith("select/")},
    }
    # Nor may a store out of reach cost a trial its row.
    with suppress(OSError, UserError):
        # An existing one stays, as all artifacts do: rows of an earlier run are of it.
        with suppress(DamagedFileError):
            artifact_manifest(folder)
            return
        with store.lock("classifier", spec.hash):
            # Another process may have written it meanwhile.
            if read_or_remove(folder, artifact_manifest) is None:
                write_tensors(folder, dict(tensors), about)


def load_classifier(
    spec: TrialSpec,
    store: Store,
    development: Callable[[], Development],
    device: torch.device,
) -> Classifier:
    """Load the classifier of a finished trial; where it is not kept, train it again and keep it.

    Args:
        spec: of the trial.
        store: holds its network; its banks and classifiers, where they were made.
        development: loads the images, if a bank must be made; the test split is not needed.
        device: where it will live.

    Raises:
        DamagedFileError: the store does not hold the network, or not whole.
    """
    if spec.head is None and spec.posthoc is None:
        return Classifier(None, None, {})
    with suppress(DamagedFileError):
        tensors, about = read_tensors(store.folder(KIND, spec.hash))
        if about.get("layout") == LAYOUT:
            return Classifier(spec.head, spec.posthoc, tensors, about["select"]).to(device)
    return train_again(spec, store, development, device)


def judged(classifier: Classifier, bank: DevelopmentBank) -> dict[str, float]:
    """Return metrics on ``select``, as ``select/<name>``."""
    found = classifier.logits(bank.select())
    scores = evaluate(found.logits, found.labels)
    return {column("select", name): float(score) for name, score in scores.items()}


def train_again(
    spec: TrialSpec,
    store: Store,
    development: Callable[[], Development],
    device: torch.device,
) -> Classifier:
    """Train the head again, whatever was stored, and return as ``load_classifier`` does."""
    key, is_head = bank_key(spec, spec.head), spec.head is not None
    bank = ensure_development_bank(spec, key, store, development, device, with_train=is_head)
    trainer = transform = None
    if spec.head is not None:
        with on_threads(HEAD_THREADS):
            trainer = PopulationTrainer([spec.head], bank, spec.network.seed, device)
            for _ in trainer:
                pass
    if spec.posthoc is not None:
        head = Classifier(spec.head, None, tensors_of_trial(trainer, 0, None)).to(device)
        calib = bank.calib()
        logits = head.uncalibrated(calib)
        transform = fit_transform(spec.posthoc, SplitLogits(logits, calib.labels.to(logits.device)))
    tensors = tensors_of_trial(trainer, 0, transform)
    classifier = Classifier(spec.head, spec.posthoc, tensors).to(device)
    classifier.select = judged(classifier, bank)
    store_classifier(store, spec, tensors, classifier.select)
    return classifier
