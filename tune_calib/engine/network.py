"""Training of one network: an iterator that yields one report an epoch.

All chance of an epoch comes from (seed, purpose, epoch), so a resumed run needs the tensors and
the epoch alone to give the numbers of an uninterrupted one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.data.augment import normalise, random_crop_flip
from tune_calib.data.base import DatasetInfo, Split
from tune_calib.data.splits import Development
from tune_calib.engine.store import generator, nest, unnest
from tune_calib.errors import DivergedError
from tune_calib.methods._base import NetworkContext, NetworkMethod
from tune_calib.metrics.calibration import ece
from tune_calib.metrics.scoring import accuracy, nll_from_logits
from tune_calib.models.build import build_network
from tune_calib.models.network import Network
from tune_calib.registry import DATASETS, METHODS
from tune_calib.seeds import child_seed
from tune_calib.spec import NetworkSlot, TrialSpec

EVALUATION_BATCH = 500


@dataclass
class Best:
    """The epoch that ``select`` judged best so far, and its weights."""

    score: float = -math.inf
    epoch: int = -1
    weights: dict[str, Tensor] = field(default_factory=dict)


class NetworkTrainer:
    """Trains the network of a spec; each ``next`` is one epoch.

    Args:
        spec: data and network slots are read.
        development: the splits a training may see; ``test`` is not among them.
        device: where the network lives.
    """

    def __init__(self, spec: TrialSpec, development: Development, device: torch.device) -> None:
        self.slot: NetworkSlot = spec.network
        self.info: DatasetInfo = DATASETS[spec.data.dataset]
        self.device = device
        self.train = development.train.to(device)
        self.select = development.select.to(device)
        self.network = build(spec).to(device)
        info = METHODS[self.slot.method]
        context = NetworkContext(
            classes=self.info.classes,
            width=self.network.width,
            samples=len(self.train),
            epochs=self.slot.epochs,
            seed=self.slot.seed,
        )
        self.method: NetworkMethod = info.implementation(self.slot.params, context).to(device)
        self.optimizer = _optimizer(self.slot, self.network, self.method)
        self.epoch = 0
        self.best = Best()

    def __iter__(self) -> Iterator[dict[str, float]]:
        """The reports of the epochs that are left."""
        return self

    def __next__(self) -> dict[str, float]:
        """Train one epoch.

        Returns:
            ``train/loss``, ``train/accuracy``, ``lr``, and accuracy, nll and ece on ``select``.

        Raises:
            StopIteration: all epochs are done.
            DivergedError: a loss is not finite.
        """
        if self.epoch >= self.slot.epochs:
            raise StopIteration
        torch.manual_seed(child_seed(self.slot.seed, "torch", self.epoch))
        lr = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        report = {"lr": lr, **self._train_epoch(), **self._judge()}
        self._keep_best(report)
        self.epoch += 1
        return report

    def learning_rate(self) -> float:
        """Learning rate of the coming epoch (milestones take effect at their epoch's start)."""
        passed = sum(round(m * self.slot.epochs) <= self.epoch for m in self.slot.milestones)
        return self.slot.lr * self.slot.lr_decay**passed

    def _batches(self) -> Iterator[Tensor]:
        order = torch.randperm(
            len(self.train), generator=generator(child_seed(self.slot.seed, "order", self.epoch))
        ).to(self.device)
        for batch in order.split(self.slot.batch_size):
            if len(batch) == self.slot.batch_size or not self.slot.drop_last:
                yield batch

    def _train_epoch(self) -> dict[str, float]:
        self.network.train()
        chance = generator(child_seed(self.slot.seed, "augment", self.epoch))
        total = correct = torch.zeros((), device=self.device)
        seen = 0
        for batch in self._batches():
            images = self.train.images[batch]
            if self.slot.augment == "standard":
                images = random_crop_flip(images, self.info.padding, self.info.flip, chance)
            loss, logits = self._step(normalise(images, self.info), self.train.labels[batch], batch)
            total = total + loss * len(batch)
            correct = correct + (logits.argmax(1) == self.train.labels[batch]).sum()
            seen += len(batch)
        if not math.isfinite(float(total)):
            raise DivergedError(f"the loss of epoch {self.epoch + 1} is {float(total)}")
        return {"train/loss": float(total) / seen, "train/accuracy": float(correct) / seen}

    def _step(self, images: Tensor, labels: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        output = self.network(images)
        loss = self.method.loss(output.logits, labels, output.features, indices)
        self.optimizer.zero_grad(set_to_none=True)
        (loss * len(labels) if self.slot.loss_reduction == "sum" else loss).backward()
        if self.slot.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.slot.clip_grad_norm)
        self.optimizer.step()
        return loss.detach(), output.logits.detach()

    def _judge(self) -> dict[str, float]:
        logits = predict(self.network, self.select, self.info)[1].double()
        if not bool(logits.isfinite().all()):
            raise DivergedError(f"the logits of epoch {self.epoch + 1} are not finite")
        probs, labels = logits.softmax(1), self.select.labels
        return {
            "select/accuracy": float(accuracy(probs, labels)),
            "select/nll": float(nll_from_logits(logits, labels)),
            "select/ece": float(ece(probs, labels)),
        }

    def _keep_best(self, report: dict[str, float]) -> None:
        rule = self.slot.select
        score = {
            "last": float(self.epoch),
            "best_val_acc": report["select/accuracy"],
            "min_val_nll": -report["select/nll"],
        }[rule]
        if score > self.best.score:
            weights = {} if rule == "last" else _copy(self.network.state_dict())
            self.best = Best(score, self.epoch, weights)

    def selected(self) -> Network:
        """The network with the weights of the epoch that ``select`` names."""
        if self.best.weights:
            self.network.load_state_dict(self.best.weights)
        return self.network

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a resumed run needs: tensors, and what JSON can hold."""
        optimizer = self.optimizer.state_dict()["state"]
        moments = {f"{i}.{key}": value for i, s in optimizer.items() for key, value in s.items()}
        tensors = {
            **nest("network", self.network.state_dict()),
            **nest("method", self.method.state_dict()),
            **nest("optimizer", {k: v for k, v in moments.items() if isinstance(v, Tensor)}),
            **nest("best", self.best.weights),
        }
        return tensors, {
            "epoch": self.epoch,
            "best_score": self.best.score,
            "best_epoch": self.best.epoch,
        }

    def load_state(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self.network.load_state_dict(unnest("network", tensors))
        self.method.load_state_dict(unnest("method", tensors))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in unnest("optimizer", tensors).items():
            index, _, key = name.partition(".")
            moments.setdefault(int(index), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.epoch = about["epoch"]
        weights = {k: v.to(self.device) for k, v in unnest("best", tensors).items()}
        self.best = Best(about["best_score"], about["best_epoch"], weights)


def build(spec: TrialSpec) -> Network:
    """The untrained network of a spec."""
    info: DatasetInfo = DATASETS[spec.data.dataset]
    slot = spec.network
    return build_network(
        slot.backbone, slot.init, info.channels, info.size, info.classes, slot.seed
    )


@torch.no_grad()
def predict(
    network: Network, split: Split, info: DatasetInfo, bn_mode: str = "eval"
) -> tuple[Tensor, Tensor]:
    """Features (N, D) and logits (N, C) of a split.

    Args:
        network: in evaluation mode afterwards, but for what ``bn_mode`` says.
        split: the images.
        info: their data set.
        bn_mode: ``train`` normalises by the statistics of each batch and lets the running
            ones drift, as TST's code does.
    """
    network.eval()
    if bn_mode == "train":
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()
    outputs = [network(normalise(x, info)) for x in split.images.split(EVALUATION_BATCH)]
    return torch.cat([o.features for o in outputs]), torch.cat([o.logits for o in outputs])


def _copy(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def _optimizer(slot: NetworkSlot, network: nn.Module, method: nn.Module) -> torch.optim.Optimizer:
    parameters = [*network.parameters(), *method.parameters()]
    if slot.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=slot.lr, momentum=slot.momentum, weight_decay=slot.weight_decay
        )
    kind = torch.optim.Adam if slot.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=slot.lr, weight_decay=slot.weight_decay)
