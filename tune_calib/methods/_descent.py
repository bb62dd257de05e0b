"""Minimisation of smooth objectives by automatic differentiation, without a learning rate."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_STEPS = 100
_FOLD_STEPS = 10  # of fits for cross-validation, which start from the fit to all samples
_WORK = 2e8  # logits read by a fit, which limits the steps with many classes
_LEAST_STEPS = 10
_FALL = 5e-3  # of the objective in the last quarter of the search, where it has converged

Objective = Callable[[Sequence[Tensor]], Tensor]


def descended(
    objective: Objective, start: Sequence[Tensor], logits: Tensor, is_fold: bool = False
) -> tuple[list[Tensor], float, bool]:
    """Minimise an objective of parameters by L-BFGS with a line search.

    Args:
        objective: maps parameters, in the shapes of ``start``, to a scalar with a gradient.
        start: float64 tensors, which are not changed.
        logits: (N, C) that the objective reads; the more, the fewer steps.
        is_fold: whether few steps suffice.

    Returns:
        the best parameters met, their objective, and whether the last quarter of the search has
        lowered it by less than 0.005.
    """
    limit = max(_LEAST_STEPS, min(_STEPS, int(_WORK / max(1, logits.numel()))))
    steps = min(_FOLD_STEPS, limit) if is_fold else limit
    parameters = [tensor.clone().requires_grad_() for tensor in start]
    solver = torch.optim.LBFGS(
        parameters, max_iter=steps, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )
    best, lowest = list(start), float("inf")
    falls: list[float] = []  # the lowest objective at each evaluation

    def closure() -> Tensor:
        nonlocal best, lowest
        solver.zero_grad()
        loss = objective(parameters)
        loss.backward()
        if loss.item() < lowest:
            best, lowest = [tensor.detach().clone() for tensor in parameters], loss.item()
        falls.append(lowest)
        return loss

    with torch.enable_grad():
        solver.step(closure)
    return best, lowest, falls[len(falls) * 3 // 4] - lowest < _FALL
