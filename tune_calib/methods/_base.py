"""Interfaces between methods and the engine, one for each kind of method."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.spec.methods import Params
from tune_calib.spec.slots.head import HeadSlot


class NoParams(Params):
    """A method without hyper-parameters."""


@dataclass(frozen=True)
class NetworkContext:
    """Everything that a network method may know about the run.

    Attributes:
        classes: C.
        width: D, the width of the features.
        samples: N, size of the training split.
        epochs: planned epochs.
        seed: seed of the network.
    """

    classes: int
    width: int
    samples: int
    epochs: int
    seed: int


@dataclass(frozen=True)
class Batch:
    """Images (N, ...) float32, normalised and augmented; labels (N,); indices (N,) int64."""

    images: Tensor
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Step:
    """Mean loss of a batch, and the logits (N, C) that its accuracy is counted on."""

    loss: Tensor
    logits: Tensor


@dataclass(frozen=True)
class EpochFeedback:
    """Logits (N, C) and labels (N,) of the split ``calib``, in evaluation mode, after an epoch.

    ``test`` can not be among what a method learns from, and ``select`` stays unseen too.
    """

    logits: Tensor
    labels: Tensor


class NetworkMethod(nn.Module):
    """A way to train the whole network, with what state it needs.

    Buffers and parameters registered here are part of the checkpoint; parameters are trained
    by the network's optimiser, but their gradient is not clipped.

    Args:
        params: the method's hyper-parameters.
        context: what it may know of the run.
    """

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__()
        self.params = params
        self.context = context

    def adapt(self, network: Any) -> None:
        """Make modules that depend on the network; called once, before the optimiser is made."""

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """Before the first batch of an epoch (0-based).

        Args:
            epoch: which one.
            generator: of the CPU, seeded by (seed, epoch): the only source of chance, so that
                a resumed run needs no state of it.
        """

    # The network is always an argument and never an attribute: as a submodule it would stand twice
    # in the checkpoint and in the optimiser.
    def step(self, network: Any, batch: Batch) -> Step:
        """Mean loss of a batch; the default is one forward pass and ``loss``."""
        output = network(batch.images)
        loss = self.loss(output.logits, batch.labels, output.features, batch.indices)
        return Step(loss, output.logits)

    def trained(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """Those of the network's parameters that the optimiser moves in this epoch."""
        return parameters

    def after_step(self, logits: Tensor, labels: Tensor, indices: Tensor) -> None:
        """After the optimiser's step, with the detached logits of the batch."""

    def end_epoch(self, epoch: int, feedback: EpochFeedback | None) -> dict[str, float]:
        """After the last batch.

        Args:
            epoch: which one, 0-based.
            feedback: only for a method whose record needs ``calib_pass``.

        Returns:
            What to record of the epoch.
        """
        return {}

    def samples_seen(self) -> dict[str, Tensor]:
        """Return per-sample values of the epoch's training samples, each (N,), for the record.

        Returns:
            ``sample`` (positions in the training split), ``gate``, ``indicator``, ``confidence``,
            ``correct``; empty for a method that judges no single sample.
        """
        return {}

    def sample_record(self, logits: Tensor, labels: Tensor, features: Tensor) -> dict[str, Tensor]:
        """Return the values of ``samples_seen`` for samples that the method does not train on."""
        return {}

    def forward(self, network: Any, images: Tensor) -> Any:
        """Features and logits at evaluation; the default is the network's own."""
        return network(images)

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Mean loss of a batch.

        Args:
            logits: (N, C), unnormalised.
            labels: (N,) int64.
            features: (N, D), what the head sees.
            indices: (N,) int64, positions in the training split.

        Returns:
            A scalar.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class HeadContext:
    """Everything that a head method may know about the frozen network.

    Attributes:
        width: D.
        classes: C.
        epochs: planned epochs.
        weight: (C, D) weight of the network's own head.
        bias: (C,) bias of the network's own head.
        val_ratio: accuracy on ``select`` over accuracy on ``train`` of the network, (0, 1].
        device: where the population lives.
    """

    width: int
    classes: int
    epochs: int
    weight: Tensor
    bias: Tensor
    val_ratio: float
    device: torch.device


@dataclass(frozen=True)
class EpochStatistics:
    """Accuracy and confidence of each head on the training split in one epoch, each (K,)."""

    accuracy: Tensor
    confidence: Tensor


class HeadMethod:
    """K heads of one shape trained together on frozen features.

    Every tensor has a leading population axis K, and no operation mixes its entries, so that
    the numbers of head k do not depend on the other heads.

    Args:
        heads: K slots of this method that agree in everything but the per-head settings.
        context: what the method may know of the frozen network.
    """

    parameters: dict[str, Tensor]

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        self.heads = list(heads)
        self.params: Any = heads[0].params
        self.context = context

    def per_head(self, name: str) -> Tensor:
        """Values of one hyper-parameter of every head, (K,) float32."""
        values = [getattr(head.params, name) for head in self.heads]
        return torch.tensor(values, dtype=torch.float32, device=self.context.device)

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for an epoch (0-based), before its first batch."""

    def begin_batch(self, step: int) -> None:
        """Prepare for a batch; ``step`` counts from the start of training."""

    def training_logits(self, features: Tensor) -> Tensor:
        """Logits that the loss is taken of: features (B, D) or (K, B, D) to (K, B, C)."""
        raise NotImplementedError

    def loss(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of each head: log_probs (K, B, C), labels (B,) or (K, B) to (K,)."""
        return nll(log_probs, labels)

    def restrict_gradients(self) -> None:
        """Change ``.grad`` of the parameters in place after the backward pass."""

    def gradient_masks(self) -> dict[str, Tensor]:
        """Parameters whose gradient is multiplied by a mask of the same shape, before the step.

        A restriction that is a mask costs less here than in ``restrict_gradients``.
        """
        return {}

    def update_masks(self) -> dict[str, Tensor]:
        """Parameters of which only some entries may move: 1 where they may, same shape."""
        return {}

    def end_epoch(self, epoch: int, statistics: EpochStatistics) -> dict[str, Tensor]:
        """After the last batch; returns what to record of the epoch, each (K,)."""
        return {}

    def wants_pass(self) -> bool:
        """Return whether the epoch's statistics come from a pass of their own (``pass_logits``)."""
        return False

    def pass_logits(self, features: Tensor) -> Tensor:
        """Logits of that pass: (N, D) to (K, N, C)."""
        raise NotImplementedError

    def predict(self, features: Tensor, first: int = 0) -> Tensor:
        """Logits, or logarithms of averaged probabilities, at evaluation: (N, D) to (K, N, C).

        Args:
            features: of some samples that follow each other in a split.
            first: place of the first one in the split; what is drawn for a sample follows from
                its place, and not from how the split is cut.
        """
        return self.training_logits(features)

    def draws(self) -> bool:
        """Return whether ``predict`` draws numbers, which an exported file cannot do."""
        return False

    def state(self) -> dict[str, Tensor]:
        """Tensors beyond the parameters that go on, or that ``predict`` reads, each (K, ...).

        A checkpoint keeps them, and so does the best epoch of each head.
        """
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` gave."""


class PostHocMethod:
    """A transform of logits that is fitted on ``calib``.

    The transform is exported, and runs on other devices and in other precisions: it takes
    operations of torch alone, and what it reads of the fit are tensors, its state.
    """

    def __init__(self, params: Any) -> None:
        self.params = params

    def fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fit on held-out logits: (K, N, C) and (N,)."""
        raise NotImplementedError

    def transform(self, logits: Tensor) -> Tensor:
        """Calibrated logits, or log-probabilities, of the same shape and type; all finite."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Everything that ``transform`` reads, each (K, ...)."""
        raise NotImplementedError

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what ``state`` gave, in a fresh instance of the same hyper-parameters."""
        raise NotImplementedError

    def fitted(self) -> dict[str, Tensor]:
        """Numbers of the fit for the record, each (K,); after ``fit`` alone."""
        raise NotImplementedError

    def flags(self) -> dict[str, Tensor]:
        """Return the flags of ``names.FLAGS`` that the fit of each classifier raises, (K,) bool."""
        return {}


def log_mean_exp(draws: Iterable[Tensor]) -> Tensor:
    """Logarithm of the mean of probabilities, given the logarithms of each draw; same shape.

    A running sum, by exp and log alone: a mean over an axis of the draws and torch.logaddexp
    round an entry by its place in the tensor, and a head's numbers must not depend on its
    population. Nothing underflows, so that no logarithm of 0 is taken.
    """
    draws = iter(draws)
    highest = next(draws)
    total, count = torch.ones_like(highest), 1
    for drawn in draws:
        top = torch.maximum(highest, drawn)
        total = total * (highest - top).exp() + (drawn - top).exp()
        highest, count = top, count + 1
    return highest + total.log() - math.log(count)


def stacked_on(drawn: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack the CPU draws of each head as one tensor on a device.

    A GPU is not waited for: a plain copy to it would wait until all work before it is done.
    """
    stacked = torch.stack(list(drawn))
    if device.type == "cpu":
        return stacked
    return stacked.pin_memory().to(device, non_blocking=True)


def nll(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean NLL of each head in nats: (K, B, C) and (B,) or (K, B) to (K,)."""
    targets = labels.expand(log_probs.shape[:2])
    return -log_probs.gather(2, targets.unsqueeze(2)).squeeze(2).mean(1)
