"""Joint training of K heads on one feature bank: an iterator that yields one report per epoch."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tune_calib.determinism import child_seed
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit
from tune_calib.engine.execution import Inputs, Tensors, as_inputs, resolve_execution, sent
from tune_calib.engine.head_steps import StackedOptimizer, Views
from tune_calib.engine.network import SELECTED_BY, watch_select
from tune_calib.engine.self_check import build_executor
from tune_calib.engine.tensors import generator, nest, unnest
from tune_calib.methods._base import EpochStatistics, HeadContext, HeadMethod
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import Execution

# With more threads, the order of summation would depend on K, and so would the last digits of a
# head. Head batches run in parallel processes instead.
HEAD_THREADS = 1

PASS_BATCH = 4096  # samples processed at once outside training, to bound memory for a large K

# Logits that are evaluated at once, in float64: evaluating all heads at once would need more memory
# than their training.
JUDGED = 2**21

HEAD_BATCH_BYTES = 2**31  # largest memory of one head batch; a node trains one on each core

# Largest number of copies of each weight: itself, its gradient, two moments and a mask; weight and
# mask of the best epoch; and, while the best epoch predicts, those of the current epoch.
COPIES = 9

# Copies of the outputs of each layer in a pass: themselves, those of the next layer, a logarithm.
OUTPUTS = 3


class HeadBatchTrainer(Iterator[dict[str, Tensor]]):
    """Trains K heads of one shape (a head batch), which do not depend on each other, by epochs.

    ``network_seed`` is the seed of the shared batch order, and ``share`` this process's part of a
    GPU.
    """

    def __init__(
        self,
        slots: Sequence[HeadSlot],
        bank: DevelopmentBank,
        network_seed: int,
        device: torch.device,
        execution: Execution = "auto",
        share: float = 1.0,
    ) -> None:
        self.slot = slots[0]
        self.slots = list(slots)
        self.bank = bank
        self.device = device
        self.network_seed = network_seed
        self.views = Views(bank, device, share)
        select = bank.select()
        features, labels = select.features.to(device), select.labels.to(device)
        self.select = replace(select, features=features, labels=labels)
        context = head_context(self.slot, bank, device)
        self.method: HeadMethod = METHODS[self.slot.method].implementation(slots, context)
        self.optimizer = StackedOptimizer(slots, self.method.parameters)
        self.execution = resolve_execution(execution, device, self.method.is_capturable)
        self.executor = build_executor(
            execution, self.execution, self.slot, self._step, self.changing
        )
        self.epoch = 0
        self.updates = 0  # of the current epoch
        self.best_score = torch.full((len(slots),), -math.inf, dtype=torch.float64)
        self.best_epoch = torch.full((len(slots),), -1)
        # Updates of this epoch before its best state; 0 if an earlier epoch has a better one.
        self.best_step = torch.zeros(len(slots), dtype=torch.float64)
        self.best: dict[str, Tensor] = {}
        self.diverged_epoch = torch.full((len(slots),), -1)

    def __next__(self) -> dict[str, Tensor]:
        if self.epoch >= self.slot.epochs:
            raise StopIteration
        view = self.epoch % self.bank.views
        self.method.begin_epoch(self.epoch)
        report, statistics = self._train_epoch(view)
        with torch.no_grad():
            if self.method.wants_pass():
                statistics = self._pass(self.views.view(view))
            # Before the evaluation on select, as in the training of networks.
            report |= self.method.end_epoch(self.epoch, statistics)
        report |= self._judge()
        report = {name: values.double().cpu() for name, values in report.items()}
        finite = report["train/loss"].isfinite() & report["select/nll"].isfinite()
        self.diverged_epoch[~finite & (self.diverged_epoch < 0)] = self.epoch
        self._store_best(report)
        if self.slot.select_every is not None:
            report["best_step"] = self.best_step.clone()
        self.epoch += 1
        return report

    @torch.no_grad()
    def _judge(self) -> dict[str, Tensor]:
        """Return metrics (K,) of the current states on ``select``."""
        logits = logits_of(self.method, self.select.features)
        scores = _evaluate_in_parts(logits, self.select.labels, self.slot.select)
        return {name: values.double().cpu() for name, values in scores.items()}

    def _order(self, samples: int) -> Tensor:
        if self.slot.batch_order == "shared":
            # The seed of a head would make the order depend on the other heads of the batch.
            seed = child_seed(self.network_seed, "head order", self.epoch)
            return torch.randperm(samples, generator=generator(seed))
        orders = []
        for slot in self.slots:
            seed = child_seed(slot.seed, "order", self.epoch)
            orders.append(torch.randperm(samples, generator=generator(seed)))
        return torch.stack(orders)

    def _batches(self, view: int, order: Tensor) -> Iterator[Inputs]:
        size, place = self.slot.batch_size, None
        if self.executor.is_captured:
            place = self.views.hold(view)
        if place is None:
            for features, labels in self.views.batches(self.views.view(view), order, size):
                yield {"features": features, "labels": labels}
            return
        order = order + place * order.shape[-1]
        for positions in sent(order, self.device).split(size, dim=-1):
            yield {"positions": positions}

    def _train_epoch(self, view: int) -> tuple[dict[str, Tensor], EpochStatistics]:
        samples, batch_size = len(self.views.view(view).labels), self.slot.batch_size
        # These stay on the device until the end of the epoch, since reading one would stall a GPU.
        losses, rights, confidences = torch.zeros(3, len(self.slots), device=self.device)
        steps, every = math.ceil(samples / batch_size), self.slot.select_every
        self.best_step.zero_()
        corrections: dict[str, Any] = {}
        for name, numbers in self.optimizer.begin_steps(steps).items():
            corrections[name] = as_inputs(numbers, self.executor, self.device)
        for number, inputs in enumerate(self._batches(view, self._order(samples))):
            step = self.epoch * steps + number
            size = min(batch_size, samples - number * batch_size)
            self.method.begin_batch(step)
            inputs |= nest("draw", self.method.draw(step, size))
            for name, values in corrections.items():
                inputs[f"correction.{name}"] = values[number]
            outputs = self.executor(inputs)
            losses += outputs["loss"] * size
            rights += outputs["rights"]
            confidences += outputs["confidence"]
            self.updates = number + 1
            # The last state of an epoch is judged after the end of the epoch.
            if every is not None and self.updates % every == 0 and self.updates < steps:
                self._store_best(self._judge())
        report = {"train/loss": losses / samples, "train/accuracy": rights / samples}
        report["train/confidence"] = confidences / samples
        statistics = EpochStatistics(report["train/accuracy"], report["train/confidence"])
        return report, statistics

    def _step(self, inputs: Inputs) -> Tensors:
        if "positions" in inputs:
            features, labels = self.views.rows(inputs["positions"])
        else:
            features, labels = inputs["features"], inputs["labels"]
        self.method.drawn = unnest("draw", inputs)
        log_probs = self.method.training_logits(features).log_softmax(-1)
        loss = self.method.loss(log_probs, labels)
        # Heads share no parameters, so the gradient of the sum is the gradient of each head.
        factor = labels.shape[-1] if self.slot.loss_reduction == "sum" else 1
        loss.backward(torch.full_like(loss, factor))
        self.optimizer.step(
            frozen=self.method.update_masks(),
            restricted=self.method.gradient_masks(),
            corrections=unnest("correction", inputs),
        )
        top, predicted = log_probs.detach().max(-1)
        rights, confidence = (predicted == labels).sum(-1), top.exp_().sum(-1)
        return {"loss": loss.detach(), "rights": rights, "confidence": confidence}

    def changing(self) -> Tensors:
        return {**tensors_of(self.method), **nest("optimizer", self.optimizer.moments)}

    def _pass(self, train: FeatureSplit) -> EpochStatistics:
        totals = torch.zeros(2, len(self.slots), device=self.device)
        chunks = zip(train.features.split(PASS_BATCH), train.labels.split(PASS_BATCH), strict=True)
        for features, labels in chunks:
            logits = self.method.pass_logits(features.to(self.device))
            top, predicted = logits.softmax(-1).max(-1)
            rights = (predicted == labels.to(self.device)).sum(-1)
            totals += torch.stack([rights, top.sum(-1)])
        return EpochStatistics(*(totals / len(train.labels)))

    def _store_best(self, report: dict[str, Tensor]) -> None:
        rule = self.slot.select
        if rule == "last":
            self.best_epoch[:] = self.epoch
            return
        name, sign = SELECTED_BY[rule]
        score = sign * report[name]
        # Comparisons with NaN are false, so a diverged head keeps its earlier best epoch.
        better = score > self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        self.best_epoch[better] = self.epoch
        self.best_step[better] = self.updates
        for key, tensor in tensors_of(self.method).items():
            chosen = better.to(self.device).reshape(-1, *[1] * (tensor.ndim - 1))
            self.best[key] = torch.where(chosen, tensor, self.best.get(key, tensor))

    def selected(self, k: int) -> dict[str, Tensor]:
        """Return the tensors of head k at its selected epoch (K = 1), without copying them."""
        # With the rule `last`, the heads in training are the result.
        tensors = self.best or tensors_of(self.method)
        return {name: tensor[k : k + 1] for name, tensor in tensors.items()}

    @torch.no_grad()
    def predict(self, split: FeatureSplit) -> Tensor:
        """Return logits (K, N, C) of the selected epochs; training may continue afterwards."""
        if not self.best:
            return logits_of(self.method, split.features)
        in_training = {name: tensor.clone() for name, tensor in tensors_of(self.method).items()}
        restore_tensors(self.method, self.best)
        try:
            return logits_of(self.method, split.features)
        finally:
            restore_tensors(self.method, in_training)

    def state(self) -> dict[str, Tensor]:
        return {
            **tensors_of(self.method),
            **nest("optimizer", self.optimizer.state()),
            **nest("best", self.best),
            "epoch": torch.tensor(self.epoch),
            "best_score": self.best_score,
            "best_epoch": self.best_epoch,
            "diverged_epoch": self.diverged_epoch,
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        restore_tensors(self.method, state)
        self.optimizer.load_state(unnest("optimizer", state))
        self.best = {k: v.to(self.device) for k, v in unnest("best", state).items()}
        self.epoch = int(state["epoch"])
        # Copied, since they are modified in place.
        self.best_score, self.best_epoch = state["best_score"].clone(), state["best_epoch"].clone()
        self.diverged_epoch = state["diverged_epoch"].clone()


def tensors_of(method: HeadMethod) -> dict[str, Tensor]:
    """Return all tensors on which the predictions of heads depend, without copying them."""
    weights = {name: tensor.detach() for name, tensor in method.parameters.items()}
    return {**nest("head", weights), **nest("method", method.state())}


def restore_tensors(method: HeadMethod, tensors: dict[str, Tensor]) -> None:
    for name, weights in unnest("head", tensors).items():
        method.parameters[name].data.copy_(weights)
    method.load_state(unnest("method", tensors))


def logits_of(method: HeadMethod, features: Tensor) -> Tensor:
    """Return logits (K, N, C) of the features (N, D) of a split."""
    # Copies, since features of a mapped bank are aligned differently, on which the last digit of a
    # product depends on some processors.
    logits = []
    for number, part in enumerate(features.split(PASS_BATCH)):
        copy = part.to(method.context.device, copy=True)
        logits.append(method.predict(copy, number * PASS_BATCH))
    return torch.cat(logits, dim=1)


def head_context(slot: HeadSlot, bank: DevelopmentBank, device: torch.device) -> HeadContext:
    weight, bias = bank.own_head()
    accuracies = bank.manifest["accuracy"]
    # At most 1, like every gamma. The bound avoids a division by 0 for an accuracy of 0.
    ratio = min(1.0, accuracies["select"] / max(accuracies["train"], 1e-12))
    classes, width = weight.shape
    weight, bias = weight.to(device), bias.to(device)
    return HeadContext(width, classes, slot.epochs, weight, bias, ratio, device)


# Settings besides those of a method that may differ between the heads of one batch.
PER_HEAD = {"seed", "lr", "weight_decay"}


def head_batch_key(slot: HeadSlot) -> str:
    """Return the settings that the heads of one batch must have in common, as text."""
    per_head = METHODS[slot.method].per_head
    common = slot.model_dump(mode="json", exclude=PER_HEAD)
    common["params"] = {k: v for k, v in common["params"].items() if k not in per_head}
    return repr(sorted(common.items()))


def _evaluate_in_parts(logits: Tensor, labels: Tensor, rule: str) -> dict[str, Tensor]:
    """Return metrics of heads, (K, N, C) to (K,), evaluated a few at a time; NaN if diverged."""
    scores: dict[str, list[Tensor]] = defaultdict(list)
    for part in logits.split(max(1, JUDGED // logits[0].numel())):
        values = part.double()
        finite = values.flatten(1).isfinite().all(1)
        # A diverged head is evaluated on zeros and marked afterwards; the others must continue.
        values = torch.where(finite[:, None, None], values, 0.0)
        for name, score in watch_select(values, labels, rule).items():
            scores[name].append(torch.where(finite, score, math.nan))
    return {name: torch.cat(parts) for name, parts in scores.items()}


def in_parts(slots: Sequence[HeadSlot], bank: DevelopmentBank) -> list[list[HeadSlot]]:
    most = max(1, HEAD_BATCH_BYTES // _bytes_of_a_head(slots[0], bank))
    size = math.ceil(len(slots) / math.ceil(len(slots) / most))
    return [list(slots[first : first + size]) for first in range(0, len(slots), size)]


def _bytes_of_a_head(slot: HeadSlot, bank: DevelopmentBank) -> int:
    context = head_context(slot, bank, torch.device("cpu"))
    method: HeadMethod = METHODS[slot.method].implementation([slot], context)
    tensors = method.parameters.values()
    weights = sum(tensor.numel() for tensor in tensors)
    # The first axis after that of the heads: the outputs of a layer, or 1 for its bias.
    outputs = sum(tensor.shape[1] for tensor in tensors)
    judged = sum(len(split.labels) for split in bank.evaluated().values())
    numbers = COPIES * weights + OUTPUTS * PASS_BATCH * outputs + judged * context.classes
    return 4 * numbers
