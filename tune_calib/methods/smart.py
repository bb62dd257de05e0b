"""SMART (Guo et al., ICML 2026): a temperature from the margin between the two largest logits.

A network with two hidden layers of 16 units maps the margin of a sample, standardised on ``calib``,
to its temperature, at least 0.1. It minimises a soft ECE: a sample belongs to all 15 bins, by a
Gaussian of the distance of its confidence from their centres, and gaps of bins are rounded off at
0.001, so that the loss is never below it. The order of the classes of a sample does not change,
but that of samples by confidence may.

The fit is that of the authors' program: Adam with a rate of 0.005 on all samples at once, from the
initial weights of seed 1, for at most 2,000 steps, and at most 200 without a fall of the loss by
more than 1e-4. The weights after the step from the lowest loss are kept. The trial is flagged if
the steps do not suffice, or if no temperature is the best: where all samples are right, T falls to
its floor.

Differences from their program: the fit is in double precision, since rounding to single precision
moves its loss by up to 8 %; samples are sorted first, so that their order changes nothing; and fits
for cross-validation take 50 steps from the full fit.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from tune_calib.methods._networks import Layers, evaluate_layers, in_one_order, layers_of, softplus
from tune_calib.methods._posthoc import Fit, FittedAlone
from tune_calib.metrics.refinement import has_best_temperature, parts_of
from tune_calib.spec.methods import METHODS, cited

_SIZES = (1, 16, 16, 1)  # of the layers
_RATE, _STEPS, _FOLD_STEPS = 0.005, 2000, 50
_PATIENCE, _FALL = 200, 1e-4  # so many steps without such a fall of the loss end the fit
_FLOOR = 0.1  # of the temperature


class MarginTemperature(FittedAlone):
    """A temperature for each sample, from the margin between its two largest logits."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        logits, labels = in_one_order(logits, labels)
        margins = margins_of(logits)
        scaling = {"mean": margins.mean(), "deviation": margins.std(correction=0).clamp_min(1e-8)}
        return fit_network(logits, labels, initial_layers(logits), scaling, _STEPS)[0]

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        logits, labels = in_one_order(logits, labels)
        state = full_fit.state
        return fit_network(logits, labels, layers_of(state), state, _FOLD_STEPS)[0]

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        margins = (margins_of(logits) - state["mean"]) / state["deviation"]
        return logits / temperatures(margins, layers_of(state))[:, None]


def initial_layers(like: Tensor) -> Layers:
    """Return the initial layers of torch with seed 1."""
    generator, layers = torch.Generator().manual_seed(1), []
    for inputs, outputs in pairwise(_SIZES):
        for shape in ((outputs, inputs), (outputs,)):
            drawn = torch.empty(shape).uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
            layers.append(drawn.to(like))
    return layers


def margins_of(logits: Tensor) -> Tensor:
    """Return the margins (N,) of logits (N, C); 0 for a single class."""
    largest = logits.topk(min(2, logits.shape[-1]), dim=-1).values
    return largest[:, 0] - largest[:, -1]


def temperatures(margins: Tensor, layers: Layers) -> Tensor:
    """Return the temperatures of standardised margins, both (N,)."""
    return softplus(evaluate_layers(margins[:, None], layers)[:, 0]) + _FLOOR


def confidences(gaps: Tensor, inverse: Tensor) -> Tensor:
    """Return the confidences (N,) of logits minus the largest, (N, C), times 1 / T, (N,)."""
    sums, moments = gaps.new_empty(2, len(gaps))
    with torch.no_grad():  # the gradient follows below, so that nothing is kept of all classes
        for rows in parts_of(gaps):
            shares = (gaps[rows] * inverse[rows, None]).exp_()
            sums[rows] = shares.sum(-1)
            moments[rows] = shares.mul_(gaps[rows]).sum(-1)
    confidence: Tensor = 1 / sums - moments / sums.square() * (inverse - inverse.detach())
    return confidence


def soft_ece(
    confidence: Tensor, correct: Tensor, bins: int = 15, width: float = 0.05, delta: float = 1e-3
) -> Tensor:
    """Return the soft ECE of confidences (N,) and outcomes (N,) in {0, 1}, a number in [0, 1]."""
    centres = (torch.arange(bins).to(confidence) + 0.5) / bins
    weights = (((confidence - centres[:, None]) / width).square() / -2).softmax(0)
    gaps = weights @ (confidence - correct)  # times the mass of the bin
    return (gaps.square() + (delta * weights.sum(1)).square()).sqrt().sum() / len(correct)


def fit_network(
    logits: Tensor, labels: Tensor, start: Layers, scaling: Mapping[str, Tensor], steps: int
) -> tuple[Fit, list[float]]:
    """Fit by Adam from initial layers; return the losses before each step, too."""
    margins = (margins_of(logits) - scaling["mean"]) / scaling["deviation"]
    gaps, correct = logits - logits.amax(-1, keepdim=True), logits.argmax(-1) == labels
    layers = [parameter.clone().requires_grad_() for parameter in start]
    solver, losses = torch.optim.Adam(layers, lr=_RATE), list[float]()
    best, best_step, lowest = list(start), 0, float("inf")
    while len(losses) < min(steps, best_step + _PATIENCE):
        with torch.enable_grad():
            confidence = confidences(gaps, 1 / temperatures(margins, layers))
            loss = soft_ece(confidence, correct.to(confidence))
            solver.zero_grad()
            loss.backward()
        solver.step()
        losses.append(loss.item())
        if losses[-1] < lowest - _FALL:
            lowest, best_step = losses[-1], len(losses)
            best = [parameter.detach().clone() for parameter in layers]
    state = {f"layer{place}": parameter for place, parameter in enumerate(best)}
    state |= {"mean": scaling["mean"], "deviation": scaling["deviation"]}
    is_at_bound = not has_best_temperature(logits, labels)
    return Fit(state, {"objective": lowest}, len(losses) < steps, is_at_bound), losses


METHODS.register(
    name="smart",
    title="temperature from the margin, by a soft ECE",
    **cited("Guo et al., ICML", "guo2026smart"),
    formula=r"""
        p = \operatorname{softmax}(z / T),
        \quad T = \ln\left(1 + e^{h(u)}\right) + 0.1,
        \quad u = \frac{z_{(1)} - z_{(2)} - \mu}{\sigma},
        \quad h = \operatorname{argmin}_h \sum_b \frac{M_b}{N} \sqrt{g_b^2 + 0.001^2},
        \quad M_b = \sum_{i \in \mathrm{calib}} w_{ib},
        \quad g_b = \frac{1}{M_b} \sum_i w_{ib} \left(\max_k p_{ik} - [\hat y_i = y_i]\right),
        \quad w_{ib} = \operatorname{softmax}_b
            \left(-\frac{(\max_k p_{ik} - c_b)^2}{2 \cdot 0.05^2}\right)
    """,
    implementation=MarginTemperature,
    keeps_accuracy=True,
)
