"""Focal temperature scaling (Komisarenko and Kull, ECAI 2024).

The probabilities of temperature scaling are mapped by the inverse of the derivative of the focal
loss, which would be right for a network trained with it. For each parameter gamma, T is the first
of 0.05, 0.10, ..., 5.00 with the smallest NLL on ``calib``, and the best pair of both is used.
The order of the classes of a sample does not change. Probabilities are clipped to
[1e-12, 1 - 1e-12] first; where this makes classes equal, the top class keeps a lead of a millionth.

Differences from the authors' program: it chooses no gamma, but fits a T to each of the same eleven
and leaves it to the user to compare them; that the one with the smallest NLL on ``calib`` is used
is a rule of ours. It also offers a T that minimises the adaptive ECE.
"""

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import SMALLEST, Fit, FittedAlone, exact, keep_top, losses_of
from tune_calib.methods.temperature import is_all_right
from tune_calib.metrics.binning import at_labels
from tune_calib.spec.methods import METHODS, Params, cited

GAMMAS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 3.0, 5.0)
_NEAR_ONE = 1e-4  # of 1 - q
_GRID = np.cumsum(np.full(100, 0.05))  # a sum, to reproduce the rounding of the authors' loop


class FocalTemperatureParams(Params):
    gamma: float | None = Field(None, ge=-1, le=20)
    """Parameter of the focal loss; 0 is temperature scaling. If none is given, it is chosen by the
    NLL on `calib` among -1, -0.75, ..., 1, 3 and 5."""


class FocalTemperatureScaling(FittedAlone):
    """A temperature and the parameter of a focal loss."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        gammas = GAMMAS if self.params.gamma is None else (self.params.gamma,)
        best = {gamma: best_temperature(logits, labels, gamma) for gamma in gammas}
        gamma = min(best, key=lambda gamma: best[gamma][1])
        return self._fit(logits, labels, gamma, best[gamma][0])

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        gamma = full_fit.record["gamma"]
        return self._fit(logits, labels, gamma, best_temperature(logits, labels, gamma)[0])

    def _fit(self, logits: Tensor, labels: Tensor, gamma: float, temperature: float) -> Fit:
        record = {"temperature": temperature, "gamma": gamma}
        is_at_bound = is_all_right(logits, labels) or temperature in (_GRID[0], _GRID[-1])
        state = {name: logits.new_tensor(value) for name, value in record.items()}
        return Fit(state, record, is_at_bound=is_at_bound)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        log_probs = focal_log_probs(logits / state["temperature"], state["gamma"])
        return keep_top(log_probs, logits)


def focal_log_probs(logits: Tensor, gamma: Tensor) -> Tensor:
    """Return the log-probabilities (N, C) of the focal map of softmax(logits)."""
    probs = logits.softmax(-1)
    probs = probs.clamp(exact(SMALLEST, probs), exact(1 - SMALLEST, probs))
    logs, rest = probs.log(), 1 - probs
    # The logarithm of 1 / ((1 - q)^g (1 / q - g log q / (1 - q))).
    inverse = rest - gamma * probs * logs
    # Its terms cancel near q = 1 where gamma is -1; there, the beginning of its series is exact.
    series = (1 + gamma) * rest - gamma * (rest.square() / 2 + rest**3 / 6)
    inverse = torch.where(rest < exact(_NEAR_ONE, rest), series, inverse)
    values = logs + (1 - gamma) * rest.log() - inverse.log()
    return values.log_softmax(-1)


def best_temperature(logits: Tensor, labels: Tensor, gamma: float) -> tuple[float, float]:
    """Return the first T of the grid with the smallest NLL, and that NLL.

    The NLL is evaluated at every fifth point first, then at those between the neighbours of the
    best.
    """
    nlls: dict[int, float] = {}

    def evaluate(points: range) -> int:
        for point in points:
            if 0 <= point < len(_GRID) and point not in nlls:
                nlls[point] = focal_nll(logits, labels, float(_GRID[point]), gamma)
        return min(sorted(nlls), key=lambda point: nlls[point])

    best = evaluate(range(4, len(_GRID), 5))
    best = evaluate(range(best - 4, best + 5))
    return float(_GRID[best]), nlls[best]


def focal_nll(logits: Tensor, labels: Tensor, temperature: float, gamma: float) -> float:
    """Return the mean NLL of the focal map at a temperature, in nats."""

    def loss(part: Tensor, labels: Tensor) -> Tensor:
        return -at_labels(focal_log_probs(part / temperature, logits.new_tensor(gamma)), labels)

    return float(losses_of(loss, logits, labels).mean())


METHODS.register(
    name="focal_temperature",
    title="focal temperature scaling",
    **cited("Komisarenko and Kull, ECAI", "komisarenko2024improving"),
    formula=r"""
        p_k = \frac{s_k}{\sum_j s_j},
        \quad s_k = \frac{1}{(1 - q_k)^\gamma
            \left(\frac{1}{q_k} - \frac{\gamma \log q_k}{1 - q_k}\right)},
        \quad q = \operatorname{softmax}(z / T),
        \quad T, \gamma = \operatorname{argmin} \sum_{i \in \mathrm{calib}} -\log p_{i, y_i}
    """,
    params=FocalTemperatureParams,
    implementation=FocalTemperatureScaling,
    keeps_accuracy=True,
)
