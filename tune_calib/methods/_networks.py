"""Post-hoc maps by small networks with rectified units, fitted without a learning rate."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone
from tune_calib.methods.temperature import converged
from tune_calib.metrics.refinement import has_best_temperature

STEPS = 100
FOLD_STEPS = 10  # of fits for cross-validation, which start from the fit to all samples
_WORK = 2e8  # logits read by a fit, which limits the steps with many classes
_LEAST_STEPS = 10
_FALL = 5e-3  # of the objective in the last quarter of the search, where it has converged

Layers = Sequence[Tensor]
"""Weight (out, in) and bias (out,) of each layer in turn; all layers but the last are rectified."""
Objective = Callable[[Layers], Tensor]


class NetworkMap(FittedAlone):
    """A map whose network starts as the best single temperature and minimises an objective.

    Rows are first brought into one order: a search of a hundred steps enlarges rounding errors, so
    that results would depend on the order of the samples.
    """

    @abstractmethod
    def initial(self, temperature: float, logits: Tensor) -> Layers:
        """Return layers for which the map divides logits (N, C) by a temperature."""

    @abstractmethod
    def objective(self, logits: Tensor, labels: Tensor) -> Objective:
        """Return the objective of layers on logits (N, C) and labels (N,)."""

    def kept(self, layers: Layers, logits: Tensor) -> dict[str, Tensor]:
        """Return the state of a map fitted to logits (N, C)."""
        return {f"layer{place}": parameter for place, parameter in enumerate(layers)}

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        logits, labels = in_one_order(logits, labels)
        start = self.initial(converged(logits, labels, 1e-3), logits)
        return self._fit_from(start, logits, labels, STEPS)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        logits, labels = in_one_order(logits, labels)
        return self._fit_from(layers_of(full_fit.state), logits, labels, FOLD_STEPS)

    def _fit_from(self, start: Layers, logits: Tensor, labels: Tensor, steps: int) -> Fit:
        objective = self.objective(logits, labels)
        best, loss, is_converged = descended(objective, start, logits.numel(), steps)
        is_at_bound = not has_best_temperature(logits, labels)
        return Fit(self.kept(best, logits), {"objective": loss}, is_converged, is_at_bound)


def in_one_order(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the rows of logits (N, C) with their labels (N,), whatever the order they come in."""
    rows = torch.cat([logits, labels[:, None].to(logits)], 1).cpu().numpy()
    order = sorted(range(len(rows)), key=lambda row: rows[row].tobytes())
    return logits[order], labels[order]


def initial_layers(sizes: Sequence[int], output: float, like: Tensor) -> Layers:
    """Return layers that map everything to ``output``, with hidden weights by Glorot, seed 0."""
    generator = torch.Generator().manual_seed(0)
    layers = []
    for inputs, outputs in pairwise(sizes):
        bound = sqrt(6 / (inputs + outputs))
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        layers += [weight.to(like), like.new_zeros(outputs)]
    return [*layers[:-2], torch.zeros_like(layers[-2]), torch.full_like(layers[-1], output)]


def evaluate_layers(inputs: Tensor, layers: Layers) -> Tensor:
    """Map inputs (..., D) to outputs (..., E)."""
    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        inputs = (inputs @ weight.T + bias).relu()
    return inputs @ layers[-2].T + layers[-1]


def softplus(values: Tensor) -> Tensor:
    """Return log(1 + exp(values)), which onnxruntime does not have in double precision."""
    return values.relu() + (-values.abs()).exp().log1p()


def layers_of(state: Mapping[str, Tensor]) -> Layers:
    """Return the layers of a state, which may hold more."""
    count = sum(name.startswith("layer") for name in state)
    return [state[f"layer{place}"] for place in range(count)]


def descended(
    objective: Objective, start: Sequence[Tensor], size: int, steps: int
) -> tuple[list[Tensor], float, bool]:
    """Minimise an objective of parameters by L-BFGS with a line search.

    Args:
        objective: maps parameters, in the shapes of ``start``, to a scalar with a gradient.
        start: float64 tensors, which are not changed.
        size: number of logits that the objective reads; the more, the fewer steps.
        steps: largest number of steps.

    Returns:
        the best parameters met, their objective, and whether the last quarter of the search has
        lowered it by less than 0.005.
    """
    parameters = [tensor.clone().requires_grad_() for tensor in start]
    limit = max(_LEAST_STEPS, min(steps, int(_WORK / max(1, size))))
    solver = torch.optim.LBFGS(
        parameters, max_iter=limit, tolerance_change=1e-9, line_search_fn="strong_wolfe"
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
