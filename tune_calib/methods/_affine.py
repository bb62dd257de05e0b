"""Affine maps in front of the softmax: a penalised NLL, fitted until its gradient vanishes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tune_calib.methods.temperature import converged

EXACT = 1e-6  # largest entry of the gradient, of parameters scaled to a unit Hessian
ROUGH = 1e-4  # the same, where a fit is only judged by
# Multiplications of a whole fit, and of one that is only judged by: 100 and 10 steps for a full map
# of 1,000 classes by 2,500 samples.
_WORK = {EXACT: 2.5e11, ROUGH: 2.5e10}
_CORRECTIONS = 10  # pairs that L-BFGS keeps; at 1,000 classes each takes 16 MB
_DENSE = 500  # parameters up to which a Hessian is cheaper than the steps that it saves
_NEWTON_STEPS = 100
_DAMPING = 1e-6  # of a unit Hessian, to begin with
_LEAST_DAMPING = 1e-12  # also what makes the Hessian regular: a softmax knows no common shift
_ROUNDING = 1e-14  # of the objective


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
        """Apply the map to inputs (N, C)."""
        return mapped(inputs, self.weight, self.intercept)

    def state(self) -> dict[str, Tensor]:
        """Return the state of a post-hoc method."""
        return {"weight": self.weight, "intercept": self.intercept}


def mapped(inputs: Tensor, weight: Tensor, intercept: Tensor) -> Tensor:
    """Inputs (N, C) by a map (C,) or (C, C) and an intercept (C,)."""
    return (inputs * weight if weight.ndim == 1 else inputs @ weight.T) + intercept


def identity(inputs: Tensor, scale: float = 1.0) -> Affine:
    """Return a diagonal map of one scale."""
    diagonal = torch.full_like(inputs[0], scale)
    return Affine(diagonal, torch.zeros_like(diagonal))


def scaled(inputs: Tensor, labels: Tensor) -> Affine:
    """A diagonal map of the best temperature."""
    return identity(inputs, 1 / converged(inputs, labels, ROUGH))


def minimised(
    inputs: Tensor,
    labels: Tensor,
    ridge: Ridge,
    start: Affine,
    tolerance: float = EXACT,
    *,
    is_missing_kept: bool = False,
) -> Affine:
    """The map of the smallest mean NLL plus penalty, which are convex.

    By Newton's method for up to 500 parameters, by L-BFGS for more. Parameters are scaled by the
    diagonal of the Hessian at the start, so that one tolerance fits all: 1e-6 is an NLL within
    about 1e-12 times their number. A million of them (1,000 classes) take 0.4 GB and, with 2,500
    samples, some 0.3 s a step on one core.

    Both are of torch alone: scipy's L-BFGS calls a BLAS with threads of its own, as many as the
    machine has cores. On a busy machine these made minutes of a second.

    Args:
        inputs: (N, C), float64.
        labels: (N,).
        ridge: the penalty.
        start: where to start, of the same shape as the result.
        tolerance: of the largest entry of the scaled gradient; Newton's steps, which gain digits by
            the pair, are always exact.
        is_missing_kept: whether classes without a sample keep what they start with, and the
            softmax is one of the other classes, as they must where no penalty holds them: they
            would be driven out by their own intercept, or by a common one of all others.
    """
    is_free = torch.ones_like(start.intercept, dtype=torch.bool)
    if is_missing_kept:
        is_free = torch.bincount(labels, minlength=len(is_free)) > 0
    problem = _Problem(inputs, labels, ridge, start, is_free)
    if problem.first.numel() <= _DENSE:
        found, is_converged = _by_newton(problem)
    else:
        found, is_converged = _by_lbfgs(problem, tolerance, _steps(inputs, tolerance))
    weight, intercept = start.weight.clone(), start.intercept.clone()
    weight[is_free] = found[:, 0] if weight.ndim == 1 else found[:, :-1]
    intercept[is_free] = found[:, -1]
    return Affine(weight, intercept, is_converged)


class _Problem:
    """The objective of F classes that are free, by their rows (F, D): weights, then the intercept.

    D is 2 for a diagonal map and C + 1 for a full one.

    Args:
        inputs: (N, C).
        labels: (N,), of free classes.
        ridge: the penalty.
        start: of all classes.
        is_free: (C,).
    """

    def __init__(
        self, inputs: Tensor, labels: Tensor, ridge: Ridge, start: Affine, is_free: Tensor
    ) -> None:
        self._is_diagonal = start.weight.ndim == 1
        self._inputs = inputs[:, is_free] if self._is_diagonal else inputs
        self._labels = (is_free.cumsum(0) - 1)[labels]
        self._rows = torch.arange(len(labels), device=labels.device)
        penalty = torch.as_tensor(ridge.weight).to(start.weight).expand_as(start.weight)
        zeros = torch.zeros_like(start.intercept)
        self._penalty = _joined(penalty, zeros + ridge.intercept)[is_free]
        self._target = _joined(ridge.target, zeros)[is_free]
        self.first = _joined(start.weight, start.intercept)[is_free]

    def value(self, rows: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (F, D)."""
        log_probs, away = self._log_probs(rows), rows - self._target
        value = (self._penalty * away.square()).sum()
        value = value - log_probs[self._rows, self._labels].mean()
        residual = log_probs.exp_()
        residual[self._rows, self._labels] -= 1
        residual /= len(residual)
        if self._is_diagonal:
            slope = (residual * self._inputs).sum(0)[:, None]
        else:
            slope = residual.T @ self._inputs
        gradient = torch.cat([slope, residual.sum(0)[:, None]], 1)
        return float(value), gradient.add_(2 * self._penalty * away)

    def curvature(self, rows: Tensor) -> Tensor:
        """Diagonal of the Hessian, (F, D)."""
        probs = self._log_probs(rows).exp_()
        spread, squared = probs * (1 - probs) / len(probs), self._inputs.square()
        own = (spread * squared).sum(0)[:, None] if self._is_diagonal else spread.T @ squared
        return torch.cat([own, spread.sum(0)[:, None]], 1) + 2 * self._penalty

    def hessian(self, rows: Tensor) -> Tensor:
        """(F D, F D)."""
        probs = self._log_probs(rows).exp_()
        ones = torch.ones_like(self._inputs[:, :1])
        # Of each sample and class, (N, F or 1, D): what the class is a sum of.
        if self._is_diagonal:
            terms = torch.stack([self._inputs, ones.expand_as(self._inputs)], -1)
        else:
            terms = torch.cat([self._inputs, ones], 1)[:, None]
        weighted = probs[..., None] * terms
        flat = weighted.flatten(1)
        found = (flat.T @ flat).mul_(-1 / len(flat)).view(*rows.shape, *rows.shape)
        own = terms.expand_as(weighted).permute(1, 2, 0) @ weighted.transpose(0, 1)
        found.diagonal(dim1=0, dim2=2).add_(own.permute(1, 2, 0) / len(flat))
        found = found.view(rows.numel(), rows.numel())
        found.diagonal().add_(2 * self._penalty.flatten())
        return found

    def _log_probs(self, rows: Tensor) -> Tensor:
        return mapped(self._inputs, *_parts(rows, self._is_diagonal)).log_softmax(-1)


def _joined(weight: Tensor, intercept: Tensor) -> Tensor:
    return torch.cat([weight[:, None] if weight.ndim == 1 else weight, intercept[:, None]], 1)


def _parts(rows: Tensor, is_diagonal: bool) -> tuple[Tensor, Tensor]:
    return rows[:, 0] if is_diagonal else rows[:, :-1], rows[:, -1]


def _scale(problem: _Problem) -> Tensor:
    """Roots of the diagonal of the Hessian at the start."""
    found = problem.curvature(problem.first)
    # Where a class is certain there is no curvature, and a scale of zero would be no scale. Weights
    # and intercepts apart, since inputs may be of any size.
    for part in (found[:, :-1], found[:, -1]):
        part.clamp_(min=1e-6 * float(part.mean()) + 1e-12)
    return found.sqrt()


def _by_newton(problem: _Problem) -> tuple[Tensor, bool]:
    """Damped as by Levenberg and Marquardt: less where the quadratic tells the fall, else more."""
    scale, rows, damping = _scale(problem).flatten(), problem.first, _DAMPING
    value, gradient = problem.value(rows)
    for _ in range(_NEWTON_STEPS):
        slope = gradient.flatten() / scale
        if slope.abs().max() <= EXACT:
            return rows, True
        hessian = problem.hessian(rows) / scale / scale[:, None]
        while damping < 1 / _DAMPING:
            damped = hessian.clone()
            damped.diagonal().add_(damping)
            factor, fault = torch.linalg.cholesky_ex(damped)
            step = -torch.cholesky_solve(slope[:, None], factor)[:, 0]
            told = -float(slope @ step + step @ hessian @ step / 2)
            tried = rows + (step / scale).view_as(rows)
            new_value, new_gradient = problem.value(tried)
            fall = value - new_value + _ROUNDING * max(1.0, abs(value))
            if not fault and fall >= 0.01 * told:
                damping = max(damping / 10 if fall > 0.5 * told else damping, _LEAST_DAMPING)
                break
            damping = 10 * damping
        else:
            return rows, False
        rows, value, gradient = tried, new_value, new_gradient
    return rows, False


def _by_lbfgs(problem: _Problem, tolerance: float, steps: int) -> tuple[Tensor, bool]:
    """Stop by the gradient alone: a small step says nothing about the distance that is left."""
    scale = _scale(problem)
    point = (problem.first * scale).requires_grad_()
    solver = torch.optim.LBFGS(
        [point],
        max_iter=steps,
        tolerance_grad=tolerance,
        tolerance_change=0,
        history_size=_CORRECTIONS,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        value, gradient = problem.value(point.detach() / scale)
        point.grad = gradient.div_(scale)
        return value

    solver.step(closure)
    found = point.detach() / scale
    slope = problem.value(found)[1] / scale
    return found, bool(slope.abs().max() <= tolerance)


def _steps(inputs: Tensor, tolerance: float) -> int:
    """Return the number of steps of a fit, by its size: a clock would not give equal digits."""
    samples, classes = inputs.shape
    # A diagonal map costs as much as a full one of some hundred classes, for its exponentials; a
    # full one of few samples as one of a thousand, for what L-BFGS does with its parameters.
    work = max(samples, 1000) * classes * max(classes, 300)
    return int(min(max(_WORK[tolerance] / work, 10), 5000))
