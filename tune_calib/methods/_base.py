"""Interfaces between methods and the engine, one per kind of method."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tune_calib.spec.methods import MethodKind
from tune_calib.spec.slots.head import HeadSlot

KEPT_SHARE = 0.05  # of the free memory of a GPU: largest draws that a method keeps there


@dataclass(frozen=True)
class NetworkContext:
    """Everything that a network method may know about the run."""

    classes: int
    """Number of classes C."""
    width: int
    """Width D of the features."""
    samples: int
    """Size N of the training split."""
    epochs: int
    """Planned number of epochs."""
    seed: int
    """Seed of the network."""


@dataclass(frozen=True)
class Batch:
    """A training batch."""

    images: Tensor
    """Normalised and augmented images, (N, ...) float32."""
    labels: Tensor
    """Labels, (N,) int64."""
    indices: Tensor
    """Positions in the training split, (N,) int64."""


@dataclass(frozen=True)
class Step:
    """Mean loss of a batch, and the logits (N, C) from which its accuracy is computed."""

    loss: Tensor
    logits: Tensor


@dataclass(frozen=True)
class EpochFeedback:
    """Logits (N, C) and labels (N,) of the split ``calib``, in evaluation mode, after an epoch.

    A method never receives ``test`` or ``select``.
    """

    logits: Tensor
    labels: Tensor


class NetworkMethod(nn.Module):
    """A way to train the whole network, with its own state.

    Buffers and parameters registered here are part of the checkpoint. The optimiser of the network
    trains the parameters, but their gradients are not clipped.

    On a GPU, ``step`` and ``after_step`` are usually captured: they run once, and their operations
    are then repeated on the same tensors without Python. They may therefore read no number of a
    tensor, create no tensor on the CPU, and only change tensors in place.

    Args:
        params: hyper-parameters of the method.
        context: what the method may know about the run.
    """

    kind: ClassVar[MethodKind] = "network"
    is_capturable: ClassVar[bool] = True
    """Whether a step can be captured; otherwise the method always runs eagerly."""
    chance: torch.Generator
    drawn: dict[str, Tensor]
    """Random numbers of the current batch: those of ``draw``, on the device."""
    record: dict[str, Tensor]
    """Values of the current batch, each (N, ...), to be kept until the end of the epoch."""

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__()
        self.params = params
        self.context = context
        self.drawn, self.record = {}, {}
        self.records: list[dict[str, Tensor]] = []

    def adapt(self, network: Any) -> None:
        """Build modules that depend on the network; called once, before the optimiser is built."""

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """Prepare for an epoch, before its first batch; by default, store the generator.

        Args:
            epoch: zero-based epoch.
            generator: CPU generator seeded by (seed, epoch). It must be the only source of
                randomness, so that a resumed run needs no generator state.
        """
        self.chance = generator
        self.records = []

    def draw(self, samples: int) -> dict[str, Tensor]:
        """Draw the random numbers of a batch from ``chance``, before its step; none by default."""
        return {}

    # The network is always an argument and never an attribute: as a submodule it would appear twice
    # in the checkpoint and in the optimiser.
    def step(self, network: Any, batch: Batch) -> Step:
        """Compute the mean loss of a batch, by default with one forward pass and ``loss``."""
        output = network(batch.images)
        loss = self.loss(output.logits, batch.labels, output.features, batch.indices)
        return Step(loss, output.logits)

    def trained(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """Return the network parameters that the optimiser updates in this epoch."""
        return parameters

    def after_step(self, logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        """Update the state after the optimiser's step, given the detached logits of the batch."""

    def all_records(self) -> dict[str, Tensor]:
        """Return each value of ``record`` for all batches of the epoch, each (samples, ...)."""
        columns: dict[str, list[Tensor]] = {}
        for record in self.records:
            for name, values in record.items():
                columns.setdefault(name, []).append(values)
        return {name: torch.cat(parts) for name, parts in columns.items()}

    def end_epoch(self, epoch: int, feedback: EpochFeedback | None) -> dict[str, float]:
        """Update the state after the last batch of an epoch.

        Args:
            epoch: zero-based epoch.
            feedback: given only to a method whose record needs ``calib_pass``.

        Returns:
            Values to record for the epoch, by name.
        """
        return {}

    def samples_seen(self) -> dict[str, Tensor]:
        """Return per-sample values of the epoch's training samples, each (N,), for the record.

        Returns:
            ``sample`` (positions in the training split), ``gate``, ``indicator``, ``confidence``
            and ``correct``; empty for a method without per-sample values.
        """
        return {}

    def sample_record(self, logits: Tensor, labels: Tensor, features: Tensor) -> dict[str, Tensor]:
        """Return the values of ``samples_seen`` for samples that are not used for training."""
        return {}

    def forward(self, network: Any, images: Tensor) -> Any:
        """Return features and logits at evaluation, by default those of the network."""
        return network(images)

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Return the mean loss of a batch.

        Args:
            logits: (N, C), unnormalised.
            labels: (N,) int64.
            features: (N, D), inputs of the head.
            indices: (N,) int64, positions in the training split.

        Returns:
            A scalar.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class HeadContext:
    """Everything that a head method may know about the frozen network."""

    width: int
    """Width D of the features."""
    classes: int
    """Number of classes C."""
    epochs: int
    """Planned number of epochs."""
    weight: Tensor
    """Weight of the network's own head, (C, D)."""
    bias: Tensor
    """Bias of the network's own head, (C,)."""
    val_ratio: float
    """Ratio of the network's accuracies on ``select`` and ``train``, in (0, 1]."""
    device: torch.device
    """Device of the head batch."""


@dataclass(frozen=True)
class EpochStatistics:
    """Accuracy and mean confidence of each head on the training split in one epoch, each (K,)."""

    accuracy: Tensor
    confidence: Tensor


class HeadMethod:
    """K heads of one shape, trained together on frozen features.

    Every tensor has a leading axis K over the head batch, and no operation mixes its entries, so
    that the numbers of head k do not depend on the other heads. On a GPU, ``training_logits``,
    ``loss`` and the masks are captured, with the same restrictions as for ``NetworkMethod``.

    Args:
        heads: K slots of this method, which may differ only in seeds and per-head settings.
        context: what the method may know about the frozen network.
    """

    kind: ClassVar[MethodKind] = "head"
    is_capturable: ClassVar[bool] = True
    """Whether a step can be captured; otherwise the method always runs eagerly."""
    parameters: dict[str, Tensor]
    drawn: dict[str, Tensor]
    """Random numbers of the current batch: those of ``draw``."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        self.drawn = {}
        self._kept: dict[Hashable, dict[str, Tensor]] = {}
        self.heads = list(heads)
        self.seeds = [head.seed for head in heads]
        self.params: Any = heads[0].params
        self.context = context

    def per_head(self, name: str) -> Tensor:
        """Return the values of one hyper-parameter for all heads, (K,) float32."""
        values = [getattr(head.params, name) for head in self.heads]
        return torch.tensor(values, dtype=torch.float32, device=self.context.device)

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for a zero-based epoch, before its first batch."""

    def begin_batch(self, step: int) -> None:
        """Prepare for a batch; ``step`` counts batches from the start of training."""

    def draw(self, step: int, samples: int) -> dict[str, Tensor]:
        """Draw the random numbers of a batch, on the device, each (K, ...); none by default."""
        return {}

    def training_logits(self, features: Tensor) -> Tensor:
        """Return the logits for the loss: features (B, D) or (K, B, D) to (K, B, C)."""
        raise NotImplementedError

    def loss(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of each head: log_probs (K, B, C), labels (B,) or (K, B) to (K,)."""
        return nll(log_probs, labels)

    def gradient_masks(self) -> dict[str, Tensor]:
        """Return masks by which gradients are multiplied before the step, by parameter name."""
        return {}

    def update_masks(self) -> dict[str, Tensor]:
        """Return masks, by parameter name, that are 1 where the optimiser may change an entry."""
        return {}

    def end_epoch(self, epoch: int, statistics: EpochStatistics) -> dict[str, Tensor]:
        """Update the state after the last batch; return values (K,) to record for the epoch."""
        return {}

    def wants_pass(self) -> bool:
        """Return whether the epoch's statistics need a separate pass (``pass_logits``)."""
        return False

    def pass_logits(self, features: Tensor) -> Tensor:
        """Return the logits of the separate pass: (N, D) to (K, N, C)."""
        raise NotImplementedError

    def predict(self, features: Tensor, first: int = 0) -> Tensor:
        """Return logits or log mean probabilities at evaluation: (N, D) to (K, N, C).

        Args:
            features: features of consecutive samples of a split.
            first: position of the first sample in the split. Random numbers for a sample depend on
                its position, not on how the split is divided.
        """
        return self.training_logits(features)

    def draws(self) -> bool:
        """Return whether ``predict`` draws random numbers, which an exported file cannot do."""
        return False

    def keep(self, key: Hashable, draw: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return draws of ``predict`` on the device, where a GPU keeps them for the next epoch.

        They are drawn on the CPU, so that a classifier predicts the same on every device.
        """
        if key in self._kept:
            return self._kept[key]
        device = self.context.device
        drawn = {name: tensor.to(device) for name, tensor in draw().items()}
        if device.type != "cpu":
            # The first evaluation follows an epoch, so that training has its memory.
            size = sum(tensor.nbytes for tensor in drawn.values())
            if size <= KEPT_SHARE * torch.cuda.mem_get_info(device)[0]:
                self._kept[key] = drawn
        return drawn

    def state(self) -> dict[str, Tensor]:
        """Return the tensors, each (K, ...), that training or ``predict`` needs beyond parameters.

        They are saved in checkpoints and for the best epoch of each head.
        """
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a result of ``state``."""


class PostHocMethod:
    """A transform of logits that is fitted on ``calib``.

    The transform is exported and runs on other devices and in other precisions. It must therefore
    use only torch operations, and its state must consist of tensors.
    """

    kind: ClassVar[MethodKind] = "posthoc"
    is_storable: ClassVar[bool] = True
    """Whether ``state`` restores the transform; otherwise it is fitted to ``calib`` again, and
    cannot be exported."""
    takes_weights: bool = False
    """Whether ``fit`` reads ``weights``; otherwise rows are repeated, by whole numbers only."""
    weights: Tensor | None = None
    """Positive weights (N,), float64, of the samples to fit; None if each counts once."""
    reads_features: ClassVar[bool] = False
    """Whether the last argument of ``fit`` and ``transform`` are features (N, D), float32: those of
    the samples in the last layer of the network before its own head."""
    checks_harm: bool = True
    """Whether ``fit`` also checks, which takes several fits, that the transform does no harm."""

    def __init__(self, params: Any) -> None:
        self.params = params

    def fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fit on held-out logits (K, N, C) and labels (N,)."""
        raise NotImplementedError

    def transform(self, logits: Tensor) -> Tensor:
        """Return finite calibrated logits or log-probabilities, of the same shape and type."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that ``transform`` reads, each (K, ...)."""
        raise NotImplementedError

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a result of ``state`` in a new instance with the same hyper-parameters."""
        raise NotImplementedError

    def fitted(self) -> dict[str, Tensor]:
        """Return numbers of the fit to record, each (K,); only available after ``fit``."""
        raise NotImplementedError

    def flags(self) -> dict[str, Tensor]:
        """Return which flags of ``names.FLAGS`` the fit of each classifier raises, (K,) bool."""
        return {}


def log_mean_exp(draws: Iterable[Tensor]) -> Tensor:
    """Return the logarithm of the mean of probabilities, given the log-probabilities of each draw.

    The sum is accumulated with exp and log only. The rounding of torch.logaddexp and of a mean over
    an axis depends on the position in the tensor, and the numbers of a head must not depend on its
    head batch. Nothing underflows, so that no logarithm of 0 is taken.
    """
    draws = iter(draws)
    highest = next(draws)
    total, count = torch.ones_like(highest), 1
    for drawn in draws:
        top = torch.maximum(highest, drawn)
        total = total * (highest - top).exp() + (drawn - top).exp()
        highest, count = top, count + 1
    return highest + total.log() - math.log(count)


def nll(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean NLL of each head in nats: (K, B, C) and (B,) or (K, B) to (K,)."""
    targets = labels.expand(log_probs.shape[:2])
    return -log_probs.gather(2, targets.unsqueeze(2)).squeeze(2).mean(1)
