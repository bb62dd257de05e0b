"""Steps of the training of heads: views of a bank in order, and updates of stacked weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tune_calib.engine.bank import DevelopmentBank, FeatureSplit
from tune_calib.engine.execution import sent
from tune_calib.spec.slots.head import HeadSlot

SHARE_OF_VIEWS = 0.5  # of the memory of a GPU that a process may use; the rest is for training
BETAS = 0.9, 0.999  # of Adam, as in torch


class Views:
    """Views of the training split on a device, of which this process has a ``share``."""

    def __init__(self, bank: DevelopmentBank, device: torch.device, share: float = 1.0) -> None:
        self.bank, self.device, self.share = bank, device, share
        self.mapped: dict[int, FeatureSplit] = {}  # the last view that was read from its file
        self.held: FeatureSplit | None = None  # several views: features (P, N, D), labels (P, N)
        # Index of the view in each place of ``held``, -1 in an empty one; None before its creation.
        self.places: list[int] | None = None

    def view(self, index: int) -> FeatureSplit:
        """Return one view: a memory map of its file, or a copy on a GPU with enough memory."""
        place = None
        if self.device.type != "cpu":
            place = self.hold(index)
        if self.held is None or place is None:
            return self._read(index)
        features, labels = self.held.features[place], self.held.labels[place]
        # Without logits, which training does not read.
        return replace(self.held, features=features, logits=features[:, :0], labels=labels)

    def _read(self, index: int) -> FeatureSplit:
        if index not in self.mapped:
            # Dropping the previous map frees the memory of its pages.
            self.mapped = {index: self.bank.train(index)}
        return self.mapped[index]

    def hold(self, index: int) -> int | None:
        """Copy a view to its place on the device, or return None if there is no memory for one."""
        if self.places is None:
            split = self._read(index)
            count, shape = self.count_places(split.features.nbytes), split.features.shape
            self.places = [-1] * count
            if count:
                features = split.features.new_empty(count, *shape, device=self.device)
                labels = split.labels.new_empty(count, shape[0], device=self.device)
                logits = features[..., :0]
                self.held = replace(split, features=features, logits=logits, labels=labels)
        if self.held is None:
            return None
        place = index % len(self.places)
        if self.places[place] != index:
            split = self._read(index)
            self.held.features[place].copy_(split.features)
            self.held.labels[place].copy_(split.labels)
            self.places[place] = index
        return place

    def count_places(self, size: int) -> int:
        """Count the views of a size in bytes that the device holds at once."""
        if self.device.type == "cpu":
            return 1  # captured steps are only checked on a CPU
        free, total = torch.cuda.mem_get_info(self.device)
        # What torch keeps for its next tensors is free for them.
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        usable = SHARE_OF_VIEWS * min(free, self.share * total)
        return min(self.bank.views, int(usable // size))

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and labels at positions (B,) or (K, B) in all places, one by one."""
        assert self.held is not None
        features, labels = self.held.features.flatten(0, 1), self.held.labels.flatten()
        return _take_rows(features, positions), _take_rows(labels, positions)

    def batches(
        self, split: FeatureSplit, order: Tensor, size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features ([K,] B, D) and labels ([K,] B) in an order ([K,] N), on the device."""
        for positions in sent(order, split.features.device).split(size, dim=-1):
            features = sent(_take_rows(split.features, positions), self.device)
            yield features, sent(_take_rows(split.labels, positions), self.device)


def _take_rows(rows: Tensor, positions: Tensor) -> Tensor:
    # Equivalent to indexing, but faster.
    selected = rows.index_select(0, positions.flatten())
    return selected.view(*positions.shape, *rows.shape[1:])


def squared_norms(tensor: Tensor) -> Tensor:
    """Return the squared L2 norm of each head's part: (K, ...) to (K,)."""
    # On a CPU, each head is summed separately: in one sum over an axis, the order of the terms and
    # thus the last bit of a head's result would depend on K. On a GPU, separate sums would take
    # longer than the rest of the step.
    if tensor.device.type != "cpu":
        return tensor.flatten(1).square().sum(1)
    return torch.stack([part.square().sum() for part in tensor])


class StackedOptimizer:
    """SGD, Adam or AdamW as in torch.optim, with rates per head, for leaf tensors (K, ...)."""

    def __init__(self, slots: Sequence[HeadSlot], parameters: dict[str, Tensor]) -> None:
        self.kind = slots[0].optimizer
        self.momentum = slots[0].momentum
        self.clip = slots[0].clip_grad_norm
        self.parameters = parameters
        device = next(iter(parameters.values())).device
        # (K, 1, 1), to be multiplied with (K, out, in). torch.optim has one learning rate per
        # tensor and cannot give each head its own.
        self.lr = torch.tensor([slot.lr for slot in slots], device=device)[:, None, None]
        decays = [slot.weight_decay for slot in slots]
        self.decay = torch.tensor(decays, device=device)[:, None, None]
        self.down = -self.lr
        self.has_decay = any(decays)
        self.steps = 0
        self._kinds = ("first",) if self.kind == "sgd" else ("first", "second")  # of moments
        self.moments: dict[str, Tensor] = {}
        for name, parameter in parameters.items():
            for moment in self._kinds:
                zeros = torch.zeros_like(parameter, requires_grad=False)
                self.moments[f"{name}.{moment}"] = zeros

    def begin_steps(self, count: int) -> dict[str, list[float]]:
        """Count further steps; return the corrections of their moments by name, for ``step``."""
        numbers = range(self.steps + 1, self.steps + count + 1)
        self.steps += count
        if self.kind == "sgd":
            return {}
        return {
            "first": [1 - BETAS[0] ** number for number in numbers],
            "second": [1 - BETAS[1] ** number for number in numbers],
        }

    @torch.no_grad()
    def step(
        self,
        frozen: Mapping[str, Tensor] = {},
        restricted: Mapping[str, Tensor] = {},
        corrections: Mapping[str, Any] = {},
    ) -> None:
        """Update the parameters by their gradients, and clear the gradients.

        Gradients are first multiplied by the masks in ``restricted``. Where a mask in ``frozen`` is
        0, an entry and its moments do not change. Adam divides its moments by ``corrections``,
        numbers or tensors () of this step from ``begin_steps``.
        """
        trained: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                trained[name], gradients[name] = parameter.data, parameter.grad
        for name, mask in restricted.items():
            if name in trained:
                gradients[name].mul_(mask)
        if self.clip is not None:
            # Not clip_grad_norm_, whose common norm would couple the heads. The 1e-6 and the limit
            # of 1 are taken from it.
            squares = torch.zeros_like(self.lr[:, 0, 0])
            for gradient in gradients.values():
                squares = squares + squared_norms(gradient)
            factor = (self.clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(list(gradients.values()), [factor[:, None, None]] * len(gradients))
        # All entries are updated and frozen ones restored afterwards. A masked gradient would not
        # suffice, since weight decay and momentum change entries without a gradient.
        restored = []
        for name in trained.keys() & frozen.keys():
            moments = [self.moments[f"{name}.{moment}"] for moment in self._kinds]
            for tensor in (trained[name], *moments):
                restored.append((tensor, tensor.clone(), frozen[name] > 0))
        self._update(trained, list(gradients.values()), corrections)
        for new, old, is_updated in restored:
            torch.where(is_updated, new, old, out=new)
        for parameter in self.parameters.values():
            parameter.grad = None

    def _update(
        self, trained: dict[str, Tensor], gradients: list[Tensor], corrections: Mapping[str, Any]
    ) -> None:
        # Lists of tensors in one call save most of the calls from Python. torch documents these
        # functions, although their names begin with an underscore (2.12 to 2.15).
        parameters, count = list(trained.values()), len(trained)
        firsts = [self.moments[f"{name}.first"] for name in trained]
        if self.kind == "adamw":
            torch._foreach_mul_(parameters, [1 - self.lr * self.decay] * count)
        elif self.has_decay:
            torch._foreach_addcmul_(gradients, parameters, [self.decay] * count)
        if self.kind == "sgd":
            # Starting at zero, this equals torch's first step, which uses the gradient as the
            # momentum.
            torch._foreach_mul_(firsts, self.momentum)
            torch._foreach_add_(firsts, gradients)
            torch._foreach_addcmul_(parameters, firsts, [self.down] * count)
            return
        beta1, beta2 = BETAS
        seconds = [self.moments[f"{name}.second"] for name in trained]
        torch._foreach_lerp_(firsts, gradients, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - beta2)
        scales = torch._foreach_div(seconds, corrections["second"])
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, 1e-8)
        moves = torch._foreach_div(firsts, scales)
        torch._foreach_addcmul_(parameters, moves, [self.down / corrections["first"]] * count)

    def state(self) -> dict[str, Tensor]:
        return {**self.moments, "steps": torch.tensor(self.steps)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state["steps"])
        for name, moment in self.moments.items():
            moment.copy_(state[name])
