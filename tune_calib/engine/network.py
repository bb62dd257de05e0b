"""Training of one network: an iterator that yields one report per epoch.

All random numbers of an epoch follow from (seed, purpose, epoch). A resumed run therefore needs
only the tensors and the epoch to reproduce the numbers of an uninterrupted run.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.data.augment import crop_centre, normalise
from tune_calib.data.splits import Development
from tune_calib.determinism import child_seed
from tune_calib.engine.execution import (
    Inputs,
    Tensors,
    as_inputs,
    compiling,
    resolve_execution,
    sent,
)
from tune_calib.engine.machine import set_switches
from tune_calib.engine.predict import predict
from tune_calib.engine.self_check import build_executor
from tune_calib.engine.steps import NO_WATCH, batches_of, learning_rate
from tune_calib.engine.tensors import generator, nest, unnest
from tune_calib.errors import DivergedError
from tune_calib.methods._base import Batch, EpochFeedback, NetworkContext, NetworkMethod, Step
from tune_calib.metrics.refinement import refined_nll
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.summary import measure, measure_network_check
from tune_calib.models.network import Network, build_network
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import column
from tune_calib.spec.names import WATCHED
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec

# By the setting ``select``: a quantity of an epoch's report, and the sign that makes more better.
SELECTED_BY = {
    "best_val_acc": ("select/accuracy", 1),
    "min_val_nll": ("select/nll", -1),
    "min_refined_nll": ("select/refined_nll", -1),
}


@dataclass
class Best:
    score: float = -math.inf
    epoch: int = -1
    weights: dict[str, Tensor] = field(default_factory=dict)


class NetworkTrainer(Iterator[dict[str, float]]):
    """Trains the network of a spec; each ``next`` trains one epoch."""

    def __init__(self, spec: TrialSpec, development: Development, device: torch.device) -> None:
        self.slot: NetworkSlot = spec.network
        self.info: DatasetInfo = spec.data.info
        self.device = device
        self.train = development.train.to(device)
        self.select = development.select.to(device)
        set_switches(self.slot, device)
        network, method = build(spec, len(self.train))
        self.network, self.method = network.to(device), method.to(device)
        # Only for a method that learns from calib; all others do not see it before the post-hoc
        # fit.
        needs = METHODS[self.slot.method].needs
        self.calib = development.calib.to(device) if "calib_pass" in needs else None
        self.parameters = list(self.network.parameters())
        steps = 0  # those with the whole backbone: none if a method runs its stages
        if "stages" not in needs:
            steps = self.slot.epochs * math.ceil(len(self.train) / self.slot.batch_size)
        self.execution = resolve_execution(
            self.slot.execution, device, self.method.is_capturable, steps
        )
        self.optimizer = self._optimizer()
        self.epoch = 0
        self.best = Best()
        # Per-sample records of the method in the last epoch, by split.
        self.samples: dict[str, dict[str, Tensor]] = {}
        self.watch = NO_WATCH
        self.step_watch = NO_WATCH  # for the phases of a step
        self.frozen: list[nn.Parameter] = []  # parameters that this epoch does not train
        prepare = None
        if self.execution == "compiled":
            prepare = partial(compiling, self.network, self.slot.backbone)
        self.executor = build_executor(
            self.slot.execution, self.execution, self.slot, self._step, self.changing, prepare
        )

    def __next__(self) -> dict[str, float]:
        if self.epoch >= self.slot.epochs:
            raise StopIteration
        # For dropout and other draws from torch's global generators.
        torch.manual_seed(child_seed(self.slot.seed, "torch", self.epoch))
        # One generator per purpose, so that batches and crops do not depend on how many random
        # numbers a method draws.
        chance = generator(child_seed(self.slot.seed, "method", self.epoch))
        self.method.begin_epoch(self.epoch, chance)
        report = self._train_epoch()
        self.samples = {"train": self.method.samples_seen()}
        # Before the evaluation on select: what a method changes here (BalCAL's share) is part of
        # the classifier that is evaluated and stored with the weights of this epoch.
        with self.watch.phase("feedback"):
            feedback = None
            if self.calib is not None:
                logits = predict(self.method, self.network, self.calib.images, self.info)[1]
                feedback = EpochFeedback(logits, self.calib.labels)
            report |= self.method.end_epoch(self.epoch, feedback)
        with self.watch.phase("judgement on select"):
            features, logits = predict(self.method, self.network, self.select.images, self.info)
            labels = self.select.labels
            self.samples["select"] = self.method.sample_record(logits, labels, features)
            logits = logits.double()
            # All losses of the epoch may be finite although its last step overshot.
            if not bool(logits.isfinite().all()):
                raise DivergedError(f"the logits of epoch {self.epoch + 1} are not finite")
            scores = watch_select(logits, labels, self.slot.select)
            report |= {name: float(score) for name, score in scores.items()}
        self._store_best(report)
        self.epoch += 1
        return report

    def _optimizer(self) -> torch.optim.Optimizer:
        # One optimiser for the parameters of network and method, as in FeDLaS's program. Weight
        # decay also applies to biases and BN, as in the programs of all papers.
        trained, slot = [*self.parameters, *self.method.parameters()], self.slot
        # One kernel for all tensors on a GPU. Not on a CPU, where it would change last digits.
        fused = self.device.type == "cuda" or None
        options: Any = {"lr": slot.lr, "weight_decay": slot.weight_decay, "fused": fused}
        if slot.optimizer == "sgd":
            options |= {"momentum": slot.momentum, "nesterov": slot.nesterov}
            return torch.optim.SGD(trained, **options)
        kind = torch.optim.Adam if slot.optimizer == "adam" else torch.optim.AdamW
        return kind(trained, capturable=self.execution != "eager", **options)

    def _train_epoch(self) -> dict[str, float]:
        # In each epoch, since feedback and evaluation leave both in evaluation mode.
        self.network.train()
        self.method.train()
        until = round(self.slot.augment_until * self.slot.epochs)
        info, padding, flip, spare = self.info, 0, False, 0
        if self.slot.augment == "standard" and self.epoch < until:
            padding, flip, spare = info.padding, info.flip, info.spare
        order = self._draw_order()
        moved = {id(parameter) for parameter in self.method.trained(self.parameters)}
        frozen = [parameter for parameter in self.parameters if id(parameter) not in moved]
        if set(map(id, frozen)) != set(map(id, self.frozen)):
            self.frozen = frozen
            self.executor.forget()
        # The phases of a repeated step cannot be told apart.
        is_captured = self.executor.is_captured
        self.step_watch = NO_WATCH if is_captured else self.watch
        watch = self.watch if is_captured else NO_WATCH
        schedule = partial(learning_rate, self.slot, self.epoch, batches=len(order))
        rates: Any = as_inputs(list(map(schedule, range(len(order)))), self.executor, self.device)
        chance = generator(child_seed(self.slot.seed, "augment", self.epoch))
        batches = batches_of(self.train.images, order, padding, flip, chance, spare)
        # Sums stay on the device, so that no batch waits for a GPU.
        total = correct = torch.tensor(0)
        seen = 0
        for number in range(len(order) + 1):
            with self.watch.phase("images"):
                batch = next(batches, None)
            if batch is None:
                break
            positions, images = batch
            # Cropped here, so that all batches have the shape that is captured.
            images = crop_centre(images, info)
            inputs: Inputs = {"positions": positions, "images": images, "lr": rates[number]}
            for name, tensor in self.method.draw(len(positions)).items():
                inputs[f"draw.{name}"] = sent(tensor, self.device)
            with watch.phase("captured step"):
                outputs = self.executor(inputs)
            self.method.records.append(unnest("record", outputs))
            size = len(positions)
            total, correct = total + outputs["loss"] * size, correct + outputs["correct"]
            seen += size
        if not math.isfinite(float(total)):
            raise DivergedError(f"the loss of epoch {self.epoch + 1} is {float(total)}")
        report = {"lr": schedule(0)}
        return report | {"train/loss": float(total) / seen, "train/accuracy": float(correct) / seen}

    def _draw_order(self) -> tuple[Tensor, ...]:
        chance = generator(child_seed(self.slot.seed, "order", self.epoch))
        shuffled = torch.randperm(len(self.train), generator=chance)
        order: tuple[Tensor, ...] = shuffled.to(self.device).split(self.slot.batch_size)
        # A split smaller than a batch counts as full, so that drop_last does not drop everything.
        if self.slot.drop_last and len(order[-1]) < min(self.slot.batch_size, len(self.train)):
            order = order[:-1]
        return order

    def _step(self, inputs: Inputs) -> Tensors:
        """Take a step on raw images; return mean loss, number of correct samples and records."""
        for group in self.optimizer.param_groups:
            group["lr"] = inputs["lr"]
        positions, watch = inputs["positions"], self.step_watch
        labels = self.train.labels[positions]
        with watch.phase("images"):
            batch = Batch(normalise(inputs["images"], self.info), labels, positions)
        with watch.phase("forward"):
            self.method.drawn = unnest("draw", inputs)
            output: Step = self.method.step(self.network, batch)
        self._update(output.loss, len(labels))
        with watch.phase("records"):
            logits = output.logits.detach()
            self.method.after_step(logits, labels, positions)
            correct = (logits.argmax(1) == labels).sum()
        records = nest("record", self.method.record)
        return {"loss": output.loss.detach(), "correct": correct, **records}

    def _update(self, loss: Tensor, size: int) -> None:
        with self.step_watch.phase("backward"):
            self.optimizer.zero_grad(set_to_none=True)
            # Methods return means. The factor would only scale the learning rate if there were no
            # clipping, which applies to the gradient of the sum in Mukhoti's program.
            if self.slot.loss_reduction == "sum":
                loss = loss * size
            loss.backward()
        with self.step_watch.phase("optimiser"):
            for parameter in self.frozen:
                # None, not zeros: the optimiser then skips it, including decay and momentum.
                parameter.grad = None
            if self.slot.clip_grad_norm is not None:
                # Only the network's parameters: FeDLaS's program does not clip its gate either.
                nn.utils.clip_grad_norm_(self.parameters, self.slot.clip_grad_norm)
            self.optimizer.step()

    def _store_best(self, report: dict[str, float]) -> None:
        rule = self.slot.select
        score = float(self.epoch)
        if rule != "last":
            name, sign = SELECTED_BY[rule]
            score = sign * report[name]
        # The first of equal epochs is kept; accuracies on a small split are often equal.
        if score > self.best.score:
            # The network holds the last epoch anyway; a copy would double memory and checkpoint.
            weights = {} if rule == "last" else self._weights()
            weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
            self.best = Best(score, self.epoch, weights)

    def _weights(self) -> dict[str, Tensor]:
        network = nest("network", self.network.state_dict())
        return network | nest("method", self.method.state_dict())

    def changing(self) -> Tensors:
        tensors = self._weights()
        for index, moments in self.optimizer.state_dict()["state"].items():
            for key, moment in moments.items():
                if isinstance(moment, Tensor):
                    tensors[f"optimizer.{index}.{key}"] = moment
        return tensors

    def selected(self) -> dict[str, Tensor]:
        # Their memory is for the evaluation; gradients are in that of a captured step.
        self.optimizer.zero_grad(set_to_none=True)
        self.executor.forget()
        weights = self.best.weights or self._weights()
        self.network.load_state_dict(unnest("network", weights))
        self.method.load_state_dict(unnest("method", weights))
        return weights

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = self.changing() | nest("best", self.best.weights)
        best = {"best_score": self.best.score, "best_epoch": self.best.epoch}
        return tensors, {"epoch": self.epoch, **best}

    def load_state(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.network.load_state_dict(unnest("network", tensors))
        self.method.load_state_dict(unnest("method", tensors))
        trained = [*self.parameters, *self.method.parameters()]
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in unnest("optimizer", tensors).items():
            index, _, key = name.partition(".")
            parameter = trained[int(index)]
            # In the layout of the parameter, which files do not keep: a fused optimiser needs it.
            if tensor.shape == parameter.shape:
                tensor = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
            moments.setdefault(int(index), {})[key] = tensor
        # These follow from the slot, and the learning rate is set in every epoch.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.executor.forget()  # these moments are other tensors
        self.epoch = values["epoch"]
        weights = {k: v.to(self.device) for k, v in unnest("best", tensors).items()}
        self.best = Best(values["best_score"], values["best_epoch"], weights)


def watch_select(logits: Tensor, labels: Tensor, rule: str) -> dict[str, Tensor]:
    """Return what is reported of select after an epoch, given logits (..., N, C) in float64."""
    values = measure(Samples(logits.softmax(-1), labels, logits), WATCHED)
    report = {column("select", name): value for name, value in values.items()}
    if rule == "min_refined_nll":
        report["select/refined_nll"] = refined_nll(logits, labels)
    return report


def build(spec: TrialSpec, samples: int) -> tuple[Network, NetworkMethod]:
    info, slot = spec.data.info, spec.network
    shape = info.channels, info.size, info.classes
    is_bf16 = slot.precision == "bf16"
    network = build_network(slot.backbone, slot.init, *shape, slot.seed, is_bf16=is_bf16)
    context = NetworkContext(info.classes, network.width, samples, slot.epochs, slot.seed)
    method: NetworkMethod = METHODS[slot.method].implementation(slot.params, context)
    method.adapt(network)
    # Convolutions take a quarter to a third less time on a CPU, and no more on a GPU.
    return network.to(memory_format=torch.channels_last), method


def measure_network(outputs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return accuracies and the check on train, from logits (N, C) and labels (N,) by split."""
    accuracies = {}
    for name, (logits, labels) in outputs.items():
        accuracies[name] = float((logits.argmax(1) == labels).double().mean())
    return {"accuracy": accuracies, "regime": measure_network_check(*outputs["train"])}
