"""Fits of post-hoc maps against SciPy's L-BFGS-B on the published objectives, on 20 random sets.

The objective of the fit may exceed the lowest value that SciPy reaches by no more than a tolerance:
1e-7 (1e-6 for the NLL of ETS), and 0.005 where the objective jumps as a prediction changes. Full
matrices, focal temperature scaling and networks are not among them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, cross_entropy, one_hot

from tests.methods.test_posthoc import drawn, method

SETS = 20
TOP = {"top_versus_all": True}


class Problem(NamedTuple):
    objective: Callable[[Sequence[Tensor]], Tensor]
    ours: Sequence[Tensor]
    start: Sequence[Tensor]
    bounds: Sequence[tuple[float | None, float | None]] | None = None


def lowest(problem: Problem) -> float:
    """The lowest objective that SciPy finds from the start."""
    shapes = [part.shape for part in problem.start]
    sizes = [part.numel() for part in problem.start]

    def value(point):
        parts = torch.from_numpy(point.copy()).split(sizes)
        parameters = [
            part.view(shape).requires_grad_() for part, shape in zip(parts, shapes, strict=True)
        ]
        loss = problem.objective(parameters)
        slopes = torch.autograd.grad(loss, parameters)
        return loss.item(), torch.cat([slope.flatten() for slope in slopes]).numpy()

    first = torch.cat([part.flatten() for part in problem.start]).numpy()
    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8}
    optimum = minimize(
        value, first, jac=True, method="L-BFGS-B", bounds=problem.bounds, options=options
    )
    return float(optimum.fun)


def top_loss(logits, labels):
    confidence, first = logits.softmax(1).max(1)
    return binary_cross_entropy(confidence, (first == labels).double())


def brier(probs, labels):
    return (probs - one_hot(labels, probs.shape[1])).square().sum(1).mean()


def temperature(logits, labels, fit, loss):
    """The objective of log T."""
    ours = fit.state["temperature"].double().log()

    def objective(parameters):
        return loss(logits / parameters[0].exp(), labels)

    return Problem(objective, [ours], [torch.zeros_like(ours)])


def nll_temperature(logits, labels, fit, _):
    return temperature(logits, labels, fit, cross_entropy)


def top_temperature(logits, labels, fit, _):
    return temperature(logits, labels, fit, top_loss)


def brier_temperature(logits, labels, fit, _):
    return temperature(
        logits, labels, fit, lambda scaled, targets: brier(scaled.softmax(1), targets)
    )


def affine(inputs, labels, fit, penalty, loss=cross_entropy):
    """The objective of weights and intercepts, from the identity."""
    ours = [fit.state["weight"], fit.state["intercept"]]
    ones = torch.ones_like(ours[1])

    def objective(parameters):
        weight, intercept = parameters
        return loss(inputs * weight + intercept, labels) + penalty(weight, intercept)

    return Problem(objective, ours, [ones, torch.zeros_like(ones)])


def vector(logits, labels, fit, _):
    return affine(logits, labels, fit, lambda weight, intercept: 0.0)


def structured(logits, labels, fit, _):
    samples, classes = logits.shape
    probs = (logits / fit.state["temperature"]).softmax(1)
    inputs = ((samples * probs + 1 / classes) / (samples + 1)).log()

    def penalty(weight, intercept):
        total = (weight - 1).square().sum() + intercept.square().sum()
        return classes / samples * total

    return affine(inputs, labels, fit, penalty)


def top_vector(logits, labels, fit, _):
    """Without intercepts, which are 0."""
    problem = affine(
        logits, labels, fit, lambda weight, _: 0.1 * (weight - 1).square().mean(), top_loss
    )

    def objective(parameters):
        return problem.objective([parameters[0], problem.start[1]])

    return Problem(objective, problem.ours[:1], [problem.start[0] / 2])


def beta(logits, labels, fit, _):
    log_probs = logits.log_softmax(1)

    def objective(parameters):
        first, second, intercept = parameters[0]
        margin = first * log_probs[:, 1] - second * log_probs[:, 0] + intercept
        return cross_entropy(torch.stack([torch.zeros_like(margin), margin], 1), labels)

    ours = torch.stack([fit.state[name] for name in ("a", "b", "c")])
    bounds = [(0, None), (0, None), (None, None)]
    return Problem(objective, [ours], [torch.tensor([1.0, 1.0, 0.0]).double()], bounds)


def mixture(logits, labels, fit, loss):
    """The objective of the weights of ETS, which are a softmax of the parameters."""
    plain = logits.softmax(1)
    scaled = (logits / fit.state["temperature"]).softmax(1)
    parts = torch.stack([scaled, plain, torch.full_like(plain, 1 / plain.shape[1])])

    def objective(parameters):
        mixed = torch.einsum("w,wnc->nc", parameters[0].softmax(0), parts)
        return loss(mixed, labels)

    ours = fit.state["weights"].clamp_min(1e-300).log()
    return Problem(objective, [ours], [torch.zeros_like(ours)])


def brier_mixture(logits, labels, fit, _):
    return mixture(logits, labels, fit, brier)


def nll_mixture(logits, labels, fit, _):
    return mixture(logits, labels, fit, lambda mixed, targets: cross_entropy(mixed.log(), targets))


CONVEX = 1e-7
# The map, its settings, its problem, and the tolerance of the objective.
CASES = [
    ("temperature", {}, nll_temperature, CONVEX),
    ("temperature", TOP, top_temperature, CONVEX),
    ("vector", {}, vector, CONVEX),
    ("vector", TOP, top_vector, 5e-3),
    ("svs", {}, structured, CONVEX),
    ("beta", {}, beta, CONVEX),
    ("ets", {}, brier_temperature, CONVEX),
    ("ets", {}, brier_mixture, CONVEX),
    ("ets", {"loss": "nll"}, nll_mixture, 1e-6),
    ("irova_ts", {}, brier_temperature, CONVEX),
]
IDS = [f"{name}-{problem.__name__}-{len(settings)}" for name, settings, problem, _ in CASES]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "problem_of", "tolerance"), CASES, ids=IDS)
def test_scipy_finds_no_better_fit(name, settings, problem_of, tolerance, record_property):
    excesses = []
    for seed in range(SETS):
        logits, labels = drawn(200, 2 if name == "beta" else 4, 2.0, seed)
        posthoc = method(name, settings)
        with torch.no_grad():
            fit = posthoc.fit_one(logits, labels)
        problem = problem_of(logits, labels, fit, posthoc)
        with torch.no_grad():
            ours = float(problem.objective(problem.ours))
        excesses.append(ours - lowest(problem))
    record_property("largest_excess", max(excesses))
    assert np.isfinite(excesses).all()
    assert max(excesses) <= tolerance
