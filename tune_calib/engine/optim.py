"""Optimisers for stacked parameters, with learning rate and weight decay per head."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # otherwise only torch is needed, for the benchmark on a bare machine
    from tune_calib.spec.slots.head import HeadSlot

_NONE: Mapping[str, Tensor] = MappingProxyType({})


def squared_norms(tensor: Tensor) -> Tensor:
    """Return the squared L2 norm of each head's part: (K, ...) to (K,).

    On a CPU, each head is summed separately: in one sum over an axis, the order of the terms and
    thus the last bit of a head's result would depend on K. On a GPU, separate sums would take
    longer than the rest of the step.
    """
    if tensor.device.type != "cpu":
        return tensor.flatten(1).square().sum(1)
    return torch.stack([part.square().sum() for part in tensor])


class StackedOptimizer:
    """SGD, Adam or AdamW as in torch.optim, with rates per head, for leaf tensors (K, ...)."""

    def __init__(self, slots: Sequence["HeadSlot"], parameters: dict[str, Tensor]) -> None:
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
        self.has_decay = any(decays)
        self.steps = 0
        self.moment_names = ("first",) if self.kind == "sgd" else ("first", "second")
        self.moments = {
            f"{name}.{moment}": torch.zeros_like(parameter, requires_grad=False)
            for name, parameter in parameters.items()
            for moment in self.moment_names
        }

    @torch.no_grad()
    def step(
        self, frozen: Mapping[str, Tensor] = _NONE, restricted: Mapping[str, Tensor] = _NONE
    ) -> None:
        """Update the parameters by their gradients, and clear the gradients.

        Gradients are first multiplied by the masks in ``restricted``. Where a mask in ``frozen`` is
        0, an entry and its moments do not change.
        """
        self.steps += 1
        gradients = {n: g for n, p in self.parameters.items() if (g := p.grad) is not None}
        for name in restricted.keys() & gradients.keys():
            gradients[name].mul_(restricted[name])
        self._clip(list(gradients.values()))
        # All entries are updated and frozen ones restored afterwards. A masked gradient would not
        # suffice, since weight decay and momentum change entries without a gradient.
        before = [
            (tensor, frozen[name] > 0, tensor.clone())
            for name in frozen.keys() & gradients.keys()
            for tensor in (
                self.parameters[name],
                *(self.moments[f"{name}.{m}"] for m in self.moment_names),
            )
        ]
        self._update(gradients)
        for tensor, is_free, old in before:
            torch.where(is_free, tensor, old, out=tensor)
        for parameter in self.parameters.values():
            parameter.grad = None

    def _clip(self, gradients: list[Tensor]) -> None:
        """Clip the L2 norm of each head's gradient separately."""
        if self.clip is None:
            return
        # Not clip_grad_norm_, whose common norm would couple the heads. The 1e-6 and the limit of 1
        # are taken from it.
        squares = torch.zeros_like(self.lr[:, 0, 0])
        for gradient in gradients:
            squares = squares + squared_norms(gradient)
        factor = (self.clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, [factor[:, None, None]] * len(gradients))

    def _update(self, moving: dict[str, Tensor]) -> None:
        # Lists of tensors in one call save most of the calls from Python. torch documents these
        # functions, although their names begin with an underscore (2.12 to 2.15).
        parameters = [self.parameters[name] for name in moving]
        gradients = list(moving.values())
        firsts = [self.moments[f"{name}.first"] for name in moving]
        count = len(parameters)
        if self.kind == "adamw":
            torch._foreach_mul_(parameters, [1 - self.lr * self.decay] * count)
        elif self.has_decay:
            torch._foreach_addcmul_(gradients, parameters, [self.decay] * count)
        if self.kind == "sgd":
            # Starting at zero, this equals torch's first step, which uses the gradient as the
            # momentum.
            torch._foreach_mul_(firsts, self.momentum)
            torch._foreach_add_(firsts, gradients)
            torch._foreach_addcmul_(parameters, firsts, [-self.lr] * count)
            return
        beta1, beta2, eps = 0.9, 0.999, 1e-8
        seconds = [self.moments[f"{name}.second"] for name in moving]
        torch._foreach_lerp_(firsts, gradients, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - beta2)
        scales = torch._foreach_div(seconds, 1 - beta2**self.steps)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, eps)
        moves = torch._foreach_div(firsts, scales)
        down = [-self.lr / (1 - beta1**self.steps)] * count
        torch._foreach_addcmul_(parameters, moves, down)

    def state(self) -> dict[str, Tensor]:
        """Return moments and step count."""
        return {**self.moments, "steps": torch.tensor(self.steps)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a ``state``."""
        self.steps = int(state["steps"])
        for name, moment in self.moments.items():
            moment.copy_(state[name])
