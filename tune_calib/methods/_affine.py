"""Affine maps in front of the softmax: a penalised NLL, fitted until its gradient vanishes."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

EXACT = 1e-6  # largest entry of the gradient, of parameters scaled to a unit Hessian
ROUGH = 1e-4  # the same, where a fit is only judged by
# Multiplications of a whole fit, and of one that is only judged by: 100 and 10 steps for a full map
# of 1,000 classes by 2,500 samples.
_WORK = {EXACT: 2.5e11, ROUGH: 2.5e10}
_CORRECTIONS = 10  # pairs that L-BFGS keeps; at 1,000 classes each takes 16 MB


@dataclass(frozen=True)
class Ridge:
    """Weights of squared deviations from a map; 0 where there is no penalty.

    Attributes:
        weight: of each entry of the map, of its shape, or a number for all.
        target: what the map is drawn to, of its shape.
        intercept: of each entry of the intercept, which is drawn to 0.
    """

    weight: Tensor | float
    target: Tensor
    intercept: float = 0.0


@dataclass(frozen=True)
class Affine:
    """A map (C,), which is a diagonal, or (C, C), and an intercept (C,), both float64.

    Attributes:
        weight: the map.
        intercept: what is added.
        is_converged: whether the solver reached its tolerance.
    """

    weight: Tensor
    intercept: Tensor
    is_converged: bool = True

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map inputs (N, C)."""
        return mapped(inputs, self.weight, self.intercept)

    def state(self) -> dict[str, Tensor]:
        """As the state of a post-hoc method."""
        return {"weight": self.weight, "intercept": self.intercept}


def mapped(inputs: Tensor, weight: Tensor, intercept: Tensor) -> Tensor:
    """Inputs (N, C) by a map (C,) or (C, C) and an intercept (C,)."""
    return (inputs * weight if weight.ndim == 1 else inputs @ weight.T) + intercept


def identity(inputs: Tensor, scale: float = 1.0) -> Affine:
    """A diagonal map of one scale."""
    diagonal = torch.full_like(inputs[0], scale)
    return Affine(diagonal, torch.zeros_like(diagonal))


def minimised(
    inputs: Tensor, labels: Tensor, ridge: Ridge, start: Affine, tolerance: float = EXACT
) -> Affine:
    """The map of the smallest mean NLL plus penalty, which are convex, by L-BFGS.

    Parameters are scaled by the diagonal of the Hessian at the start, so that one tolerance fits
    all: 1e-6 is an NLL within about 1e-12 times their number. A million of them (1,000 classes)
    take 0.4 GB and, with 2,500 samples, some 0.3 s a step on one core.

    Args:
        inputs: (N, C), float64.
        labels: (N,).
        ridge: the penalty.
        start: where to start, of the same shape as the result.
        tolerance: of the largest entry of the scaled gradient.
    """
    shape, size = start.weight.shape, start.weight.numel()
    rows, share = torch.arange(len(labels), device=labels.device), 1 / len(labels)

    def split(flat: Tensor) -> tuple[Tensor, Tensor]:
        return flat[:size].view(shape), flat[size:]

    def objective(scaled: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight, intercept = split(torch.from_numpy(scaled).to(inputs.device) / scale)
        log_probs = mapped(inputs, weight, intercept).log_softmax(-1)
        away = weight - ridge.target
        value = (ridge.weight * away.square()).sum() + ridge.intercept * intercept.square().sum()
        value = value - log_probs[rows, labels].sum() * share
        residual = log_probs.exp_()
        residual[rows, labels] -= 1
        residual *= share
        slope = (residual * inputs).sum(0) if weight.ndim == 1 else residual.T @ inputs
        slope = slope + 2 * ridge.weight * away
        bias_slope = residual.sum(0) + 2 * ridge.intercept * intercept
        gradient = torch.cat([slope.flatten(), bias_slope]) / scale
        return float(value), gradient.cpu().numpy()

    scale = _curvature(inputs, ridge, start).sqrt()
    first = torch.cat([start.weight.flatten(), start.intercept]) * scale
    found = minimize(
        objective,
        first.cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        # By the gradient alone: a small step says nothing of the distance that is left.
        options={
            "gtol": tolerance,
            "ftol": 0,
            "maxiter": _steps(inputs, tolerance),
            "maxcor": _CORRECTIONS,
        },
    )
    weight, intercept = split(torch.from_numpy(found.x).to(inputs.device) / scale)
    return Affine(weight, intercept, bool(np.abs(found.jac).max() <= tolerance))


def _steps(inputs: Tensor, tolerance: float) -> int:
    """How many steps a fit may take: by its size, since a clock would not give equal digits."""
    samples, classes = inputs.shape
    # A diagonal map costs as much as a full one of some hundred classes, for its exponentials; a
    # full one of few samples as one of a thousand, for what L-BFGS does with its parameters.
    work = max(samples, 1000) * classes * max(classes, 300)
    return int(min(max(_WORK[tolerance] / work, 10), 5000))


def _curvature(inputs: Tensor, ridge: Ridge, at: Affine) -> Tensor:
    """Diagonal of the Hessian, of the map and then of the intercept."""
    probs = at(inputs).softmax(-1)
    spread = probs * (1 - probs) / len(inputs)
    squared = inputs.square()
    own = (spread * squared).sum(0) if at.weight.ndim == 1 else spread.T @ squared
    parts = [
        (own + 2 * ridge.weight).flatten(),
        spread.sum(0) + 2 * ridge.intercept,
    ]
    # Where a class is certain there is no curvature, and a scale of zero would be no scale.
    return torch.cat([part.clamp_min(1e-6 * float(part.mean()) + 1e-12) for part in parts])
