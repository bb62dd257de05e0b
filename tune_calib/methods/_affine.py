"""Affine maps before the softmax, fitted by a penalised NLL until its gradient vanishes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tune_calib.methods._functional import weighted_mean
from tune_calib.methods._networks import FOLD_STEPS, STEPS, descended
from tune_calib.methods._posthoc import Fit
from tune_calib.methods.temperature import (
    converged,
    top_versus_all_losses,
    top_versus_all_temperature,
)
from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.refinement import parts_of

EXACT = 1e-6  # largest entry of the gradient, for parameters scaled to a unit Hessian
ROUGH = 1e-4  # the same, for fits that only serve cross-validation
# Multiplications of an exact and a rough fit: 100 and 10 steps for a full map of 1,000 classes on
# 2,500 samples.
_WORK = {EXACT: 2.5e11, ROUGH: 2.5e10}
_CORRECTIONS = 10  # pairs that L-BFGS stores; each takes 16 MB with 1,000 classes
_DENSE = 500  # largest number of parameters for which a Hessian costs less than the steps it saves
_NEWTON_STEPS = 100
_DAMPING = 1e-6  # initial damping, for a unit Hessian
_LEAST_DAMPING = 1e-12  # keeps the Hessian regular: a softmax ignores a common shift
_ROUNDING = 1e-14  # relative rounding error of the objective


@dataclass(frozen=True)
class Ridge:
    """Weights of the squared deviations from a target map; 0 where there is no penalty."""

    weight: Tensor | float  # of each entry of the map, in its shape, or one for all entries
    target: Tensor  # of the map, of the same shape
    intercept: float = 0.0  # weight of each entry of the intercept, whose target is 0


@dataclass(frozen=True)
class Affine:
    """An affine map in float64."""

    weight: Tensor  # the diagonal (C,) of a diagonal map, or a full map (C, C)
    intercept: Tensor  # (C,)
    is_converged: bool = True  # whether the solver reached its tolerance

    def __call__(self, inputs: Tensor) -> Tensor:
        """Apply the map to inputs (N, C)."""
        if self.weight.ndim == 1:
            return torch.addcmul(self.intercept, inputs, self.weight)
        return torch.addmm(self.intercept, inputs, self.weight.T)

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight, "intercept": self.intercept}


def identity(inputs: Tensor, scale: float = 1.0) -> Affine:
    """Return a diagonal map with the same scale for all classes."""
    diagonal = torch.full_like(inputs[0], scale)
    return Affine(diagonal, torch.zeros_like(diagonal))


def scaled(inputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Affine:
    """Return the diagonal map of the best temperature."""
    return identity(inputs, 1 / converged(inputs, labels, ROUGH, weights))


def minimised(
    inputs: Tensor,
    labels: Tensor,
    ridge: Ridge,
    start: Affine,
    tolerance: float = EXACT,
    *,
    is_missing_kept: bool = False,
    weights: Tensor | None = None,
) -> Affine:
    """Fit the affine map of inputs (N, C) float64 that minimises the mean NLL plus the penalty.

    The solver is Newton's method for up to 500 parameters and L-BFGS for more. Parameters are
    scaled by the diagonal of the Hessian at the start, so that one tolerance of the gradient suits
    all problems: 1e-6 gives an NLL within about 1e-12 times the number of parameters. Both use
    only torch: scipy's L-BFGS calls a BLAS that starts as many threads as the machine has cores,
    which turned seconds into minutes on a busy machine.

    With ``is_missing_kept``, classes without samples keep their initial values and are left out of
    the softmax. Otherwise, where they are not penalised, an intercept would drive their probability
    to 0 without end.
    """
    is_free = torch.ones_like(start.intercept, dtype=torch.bool)
    if is_missing_kept:
        is_free = torch.bincount(labels, minlength=len(is_free)) > 0
    problem = _Problem(inputs, labels, ridge, start, is_free, weights)
    if problem.first.numel() <= _DENSE:
        rows, is_converged = _by_newton(problem)
    else:
        # The number of steps follows from the sizes: a time limit would not be reproducible. The
        # exponentials make a diagonal map as costly as a full one of some hundred classes. With few
        # samples, a full map costs as much as with a thousand, since L-BFGS works on parameters.
        samples, classes = inputs.shape
        work = max(samples, 1000) * classes * max(classes, 300)
        steps = int(min(max(_WORK[tolerance] / work, 10), 5000))
        rows, is_converged = _by_lbfgs(problem, tolerance, steps)
    weight, intercept = start.weight.clone(), start.intercept.clone()
    weight[is_free] = rows[:, 0] if weight.ndim == 1 else rows[:, :-1]
    intercept[is_free] = rows[:, -1]
    return Affine(weight, intercept, is_converged)


def regularised(
    inputs: Tensor,
    labels: Tensor,
    start: Affine,
    tolerance: float,
    intercept: float = 0.0,
    off_diagonal: float | None = None,
    weights: Tensor | None = None,
) -> Affine:
    """Fit a map with penalties of the mean squares of its intercept and off-diagonal entries.

    The map is diagonal if the penalty ``off_diagonal`` is None. No diagonal is penalised.
    """
    ridge = Ridge(0.0, torch.zeros_like(start.weight), intercept / inputs.shape[-1])
    if off_diagonal is not None:
        start, ridge = odir(start, off_diagonal, intercept)
    return minimised(inputs, labels, ridge, start, tolerance, is_missing_kept=True, weights=weights)


def odir(start: Affine, off_diagonal: float, intercept: float) -> tuple[Affine, Ridge]:
    """Return a map as a full one, and its penalties of mean squares off the diagonal."""
    full = start.weight if start.weight.ndim == 2 else start.weight.diag()
    weight = torch.full_like(full, off_diagonal / max(1, len(full) * (len(full) - 1)))
    weight.fill_diagonal_(0)
    ridge = Ridge(weight, torch.zeros_like(full), intercept / len(full))
    return replace(start, weight=full), ridge


def top_versus_all_objective(
    inputs: Tensor, labels: Tensor, affine: Affine, ridge: Ridge, weights: Tensor | None = None
) -> Tensor:
    """Return the mean loss of an affine map of inputs (N, C) plus its penalty."""
    loss = weighted_mean(top_versus_all_losses(affine(inputs), labels), weights)
    away = ridge.weight * (affine.weight - ridge.target).square()
    return loss + away.sum() + ridge.intercept * affine.intercept.square().sum()


def top_versus_all_map(
    inputs: Tensor,
    labels: Tensor,
    ridge: Ridge,
    weights: Tensor | None = None,
    full_fit: Fit | None = None,
) -> Fit:
    """Fit an affine map of inputs (N, C) by the mean loss; without a penalty, no intercept.

    It starts at the best temperature, and that of a fold at the full fit.
    """
    zeros = torch.zeros_like(inputs[0])
    if full_fit is None:
        start = [ridge.target / top_versus_all_temperature(inputs, labels, weights), zeros]
    else:
        start = [full_fit.state["weight"], full_fit.state["intercept"]]

    def affine_of(parameters: Sequence[Tensor]) -> Affine:
        return Affine(parameters[0], parameters[1] if ridge.intercept else zeros)

    def objective(parameters: Sequence[Tensor]) -> Tensor:
        return top_versus_all_objective(inputs, labels, affine_of(parameters), ridge, weights)

    used = start if ridge.intercept else start[:1]
    steps = STEPS if full_fit is None else FOLD_STEPS
    best, _, is_converged = descended(objective, used, inputs.numel(), steps)
    return Fit(affine_of(best).state(), is_converged=is_converged)


class _Problem:
    """The objective as a function of the rows (F, D) of the F free classes.

    A row holds the weights and then the intercept of a class. D is 2 for a diagonal map and C + 1
    for a full one. ``is_free`` (C,) marks the free classes, to which all labels belong.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        ridge: Ridge,
        start: Affine,
        is_free: Tensor,
        weights: Tensor | None,
    ) -> None:
        self._is_diagonal = start.weight.ndim == 1
        has_all = not self._is_diagonal or bool(is_free.all())
        self._inputs = inputs if has_all else inputs[:, is_free]
        self._labels = (is_free.cumsum(0) - 1)[labels]
        weights = torch.ones_like(inputs[:, 0]) if weights is None else weights
        self._shares = (weights / weights.sum())[:, None]  # of the samples in a mean, (N, 1)
        penalty = torch.as_tensor(ridge.weight).to(start.weight).expand_as(start.weight)
        zeros = torch.zeros_like(start.intercept)
        self._penalty = _joined(penalty, zeros + ridge.intercept)[is_free]
        self._target = _joined(ridge.target, zeros)[is_free]
        self.first = _joined(start.weight, start.intercept)[is_free]

    def value(self, rows: Tensor) -> tuple[float, Tensor]:
        away = rows - self._target
        value = (self._penalty * away.square()).sum()
        gradient = 2 * self._penalty * away
        for part in parts_of(self._inputs):
            labels, shares, inputs = self._labels[part], self._shares[part], self._inputs[part]
            logits = self._logits(rows, part)
            residual = logits.softmax(-1)
            # The logarithm of the largest probability, since that of the label may be 0.
            log_probs = at_labels(logits, labels) - logits.amax(-1) + residual.amax(-1).log()
            value = value - (log_probs[:, None] * shares).sum()
            residual.scatter_add_(1, labels[:, None], -torch.ones_like(shares)).mul_(shares)
            gradient[:, -1] += residual.sum(0)
            gradient[:, :-1] += self._products(residual, inputs)
        return float(value), gradient

    def curvature(self, rows: Tensor) -> Tensor:
        """Return the diagonal of the Hessian, (F, D)."""
        curvature = 2 * self._penalty
        for part in parts_of(self._inputs):
            probs = self._logits(rows, part).softmax(-1)
            spread = (1 - probs).mul_(probs).mul_(self._shares[part])
            curvature[:, -1] += spread.sum(0)
            curvature[:, :-1] += self._products(spread, self._inputs[part].square())
        return curvature

    def hessian(self, rows: Tensor) -> Tensor:
        """Return the Hessian, (F D, F D)."""
        probs = self._logits(rows, slice(None)).softmax(-1)
        ones = torch.ones_like(self._inputs[:, :1])
        # The factors of the parameters in the logit of each sample and class, (N, F or 1, D).
        if self._is_diagonal:
            terms = torch.stack([self._inputs, ones.expand_as(self._inputs)], -1)
        else:
            terms = torch.cat([self._inputs, ones], 1)[:, None]
        weighted = probs[..., None] * terms
        flat = weighted.flatten(1)
        shared = flat * self._shares
        hessian = (flat.T @ shared).neg_().view(*rows.shape, *rows.shape)
        weighted = shared.view_as(weighted)
        blocks = terms.expand_as(weighted).permute(1, 2, 0) @ weighted.transpose(0, 1)
        hessian.diagonal(dim1=0, dim2=2).add_(blocks.permute(1, 2, 0))
        hessian = hessian.view(rows.numel(), rows.numel())
        hessian.diagonal().add_(2 * self._penalty.flatten())
        return hessian

    def _logits(self, rows: Tensor, part: slice) -> Tensor:
        weight = rows[:, 0] if self._is_diagonal else rows[:, :-1]
        return Affine(weight, rows[:, -1])(self._inputs[part])

    def _products(self, values: Tensor, inputs: Tensor) -> Tensor:
        """Sum products of values of the classes (N, F) and inputs over the samples, (F, D - 1)."""
        return (values * inputs).sum(0)[:, None] if self._is_diagonal else values.T @ inputs


def _joined(weight: Tensor, intercept: Tensor) -> Tensor:
    if weight.ndim == 1:
        weight = weight[:, None]
    return torch.cat([weight, intercept[:, None]], 1)


def _scale(problem: _Problem) -> Tensor:
    curvature = problem.curvature(problem.first)
    # A class predicted with certainty has no curvature, and a scale must not be 0. Weights and
    # intercepts are clamped separately because the inputs may have any magnitude.
    for part in (curvature[:, :-1], curvature[:, -1]):
        part.clamp_(min=1e-6 * float(part.mean()) + 1e-12)
    return curvature.sqrt()


def _by_newton(problem: _Problem) -> tuple[Tensor, bool]:
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
            predicted_fall = -float(slope @ step + step @ hessian @ step / 2)
            tried = rows + (step / scale).view_as(rows)
            new_value, new_gradient = problem.value(tried)
            fall = value - new_value + _ROUNDING * max(1.0, abs(value))
            if not fault and fall >= 0.01 * predicted_fall:
                if fall > 0.5 * predicted_fall:
                    damping = max(damping / 10, _LEAST_DAMPING)
                break
            damping = 10 * damping
        else:
            return rows, False
        rows, value, gradient = tried, new_value, new_gradient
    return rows, False


def _by_lbfgs(problem: _Problem, tolerance: float, steps: int) -> tuple[Tensor, bool]:
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
    rows = point.detach() / scale
    slope = problem.value(rows)[1] / scale
    return rows, bool(slope.abs().max() <= tolerance)
