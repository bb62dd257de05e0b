"""Optimisers over stacked parameters: learning rate and weight decay differ between heads."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tune_calib.spec import HeadSlot


def squared_norms(tensor: Tensor) -> Tensor:
    """Squared L2 norm of each head's part: (K, ...) to (K,).

    One sum a head: a sum over one axis of all of them orders its terms by K, and the last bit of
    a head's numbers would depend on the population.
    """
    return torch.stack([part.square().sum() for part in tensor])


class StackedOptimizer:
    """SGD, Adam or AdamW as torch.optim defines them, with per-head rates.

    Args:
        slots: K slots that agree in optimizer, momentum and clipping.
        parameters: stacked leaves, each (K, ...).
    """

    def __init__(self, slots: Sequence[HeadSlot], parameters: dict[str, Tensor]) -> None:
        self.kind = slots[0].optimizer
        self.momentum = slots[0].momentum
        self.clip = slots[0].clip_grad_norm
        self.parameters = parameters
        device = next(iter(parameters.values())).device
        # (K, 1, 1), to be multiplied with (K, out, in): torch.optim has one rate for a tensor and
        # cannot give each head its own.
        self.lr = torch.tensor([slot.lr for slot in slots], device=device)[:, None, None]
        decays = [slot.weight_decay for slot in slots]
        self.decay = torch.tensor(decays, device=device)[:, None, None]
        self.has_decay = any(decays)
        self.steps = 0
        names = ("first",) if self.kind == "sgd" else ("first", "second")
        self.moments = {
            f"{name}.{moment}": torch.zeros_like(parameter, requires_grad=False)
            for name, parameter in parameters.items()
            for moment in names
        }

    @torch.no_grad()
    def step(self, masks: dict[str, Tensor]) -> None:
        """Move the parameters along their gradients, which are consumed.

        Args:
            masks: parameters of which only the entries at 1 may move, moments included.
        """
        self.steps += 1
        self._clip()
        for name, parameter in self.parameters.items():
            gradient = parameter.grad
            if gradient is None:
                continue
            moments = {m: self.moments[f"{name}.{m}"] for m in self._moments()}
            # Computed for all entries and then put back: a masked gradient would not do, since
            # decay and momentum move an entry without one.
            before = _copies(parameter, moments) if name in masks else {}
            self._update(parameter.data, gradient, moments)
            for key, old in before.items():
                new = parameter.data if key == "parameter" else moments[key]
                new.copy_(torch.where(masks[name] > 0, new, old))
            parameter.grad = None

    def _moments(self) -> tuple[str, ...]:
        return ("first",) if self.kind == "sgd" else ("first", "second")

    def _clip(self) -> None:
        """Clip the L2 norm of each head's gradient on its own."""
        if self.clip is None:
            return
        # Not clip_grad_norm_, whose one norm would tie the heads to each other; the 1e-6 and the
        # limit of 1 are its own.
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        squares = torch.zeros_like(self.lr[:, 0, 0])
        for gradient in gradients:
            squares = squares + squared_norms(gradient)
        factor = (self.clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor[:, None, None])

    def _update(self, parameter: Tensor, gradient: Tensor, moments: dict[str, Tensor]) -> None:
        if self.kind == "adamw":
            parameter.mul_(1 - self.lr * self.decay)
        elif self.has_decay:
            gradient.addcmul_(parameter, self.decay)
        first = moments["first"]
        if self.kind == "sgd":
            # Begun at zero this is torch's first step too, which takes the gradient as the
            # momentum.
            first.mul_(self.momentum).add_(gradient)
            parameter.addcmul_(first, -self.lr)
            return
        beta1, beta2, eps = 0.9, 0.999, 1e-8
        second = moments["second"]
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (second / (1 - beta2**self.steps)).sqrt_().add_(eps)
        parameter.addcmul_(first / scale, -self.lr / (1 - beta1**self.steps))

    def state(self) -> dict[str, Tensor]:
        """Moments and step count."""
        return {**self.moments, "steps": torch.tensor(self.steps)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` gave."""
        self.steps = int(state["steps"])
        for name, moment in self.moments.items():
            moment.copy_(state[name])


def _copies(parameter: Tensor, moments: dict[str, Tensor]) -> dict[str, Tensor]:
    kept = {"parameter": parameter.detach(), **moments}
    return {name: tensor.clone() for name, tensor in kept.items()}
