"""Temperature scaling (Guo et al., ICML 2017): softmax(z / T), T fitted on ``calib``."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from tune_calib.methods._base import PostHocMethod, nll
from tune_calib.methods._references import GUO
from tune_calib.metrics.calibration import ece
from tune_calib.registry import METHODS, MethodInfo, Params

_BOUNDS = (1e-2, 1e2)
# A temperature so near to an end of the range, as a factor, has reached it.
_NEAR = 1.01
# Summed, not multiplied, so that the grid has the rounding of the authors' loop.
_GRID = np.cumsum(np.full(100, 0.1))
_FOLDS = 5
# Of log T, and enough to judge by: each classifier is fitted five times more.
_FOLD_TOLERANCE = 1e-3
_HARM_ERRORS = 1.645  # standard errors, 5 % one-sided
_HARM_SHARE = 0.01  # of the NLL without a temperature


class TemperatureParams(Params):
    """Hyper-parameters."""

    fit: Literal["nll", "grid_ece", "grid_nll"] = "nll"
    """What the temperature minimises on `calib`.

    - `nll`: the NLL, to convergence, T in [0.01, 100]. The published LBFGS fits of the NLL do not
      converge: T = 1.37 where the optimum is 0.3, 2.39 where it is 2.9.
    - `grid_ece`: the ECE of 15 bins, its first minimum over T = 0.1, 0.2, ..., 10.0, as the code
      of Mukhoti et al., MbLS, ACLS and FeDLaS does.
    - `grid_nll`: the NLL, its first minimum over the same grid.
    """


class TemperatureScaling(PostHocMethod):
    """One temperature a head; the accuracy does not change."""

    temperature: Tensor
    at_bound: Tensor
    harms: Tensor

    def fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fit T of every head: (K, N, C), (N,)."""
        heads = [head.double() for head in logits]
        values = [self._fit_one(head, labels) for head in heads]
        self.temperature = torch.tensor(values, dtype=torch.float64, device=logits.device)
        lowest, highest = self._range()
        # Where every sample is right, the NLL falls towards T = 0 without end: the temperature says
        # where the range ends, and nothing of calib.
        all_right = (logits.argmax(-1) == labels).all(-1)
        is_low = self.temperature <= lowest * _NEAR
        self.at_bound = all_right | is_low | (self.temperature >= highest / _NEAR)
        self.harms = torch.tensor([self._is_harmful(head, labels) for head in heads])

    def transform(self, logits: Tensor) -> Tensor:
        """Divide by the temperature."""
        return (logits.double() / self.temperature[:, None, None]).to(logits.dtype)

    def fitted(self) -> dict[str, Tensor]:
        """The temperatures."""
        return {"temperature": self.temperature}

    def flags(self) -> dict[str, Tensor]:
        """Where no temperature is best, and where the fit does worse than none on held-out data."""
        return {"temperature_bound": self.at_bound, "temperature_harms": self.harms}

    def _range(self) -> tuple[float, float]:
        return _BOUNDS if self.params.fit == "nll" else (float(_GRID[0]), float(_GRID[-1]))

    def _fit_one(self, logits: Tensor, labels: Tensor, tolerance: float = 1e-8) -> float:
        if self.params.fit == "nll":
            return _converged(logits, labels, tolerance)
        score: Callable[[Tensor, Tensor], float] = _ece if self.params.fit == "grid_ece" else _nll
        values = [score(logits / float(temperature), labels) for temperature in _GRID]
        # The first of equal minima, as the authors' loops keep it.
        return float(_GRID[int(np.argmin(values))])

    def _is_harmful(self, logits: Tensor, labels: Tensor) -> bool:
        """Whether cross-validation gives a larger NLL than T = 1, by its noise and 1 % at least.

        Without these margins every second classifier that needs no temperature would be flagged.
        """
        # By position and not drawn: the flag of a fit must not depend on a seed.
        folds = torch.arange(len(labels), device=labels.device) % _FOLDS
        excess, without = [], _losses(logits, labels)
        # One sample cannot be judged by the others.
        for fold in range(min(_FOLDS, len(labels)) if len(labels) > 1 else 0):
            held = folds == fold
            temperature = self._fit_one(logits[~held], labels[~held], _FOLD_TOLERANCE)
            excess.append(_losses(logits[held] / temperature, labels[held]) - without[held])
        if not excess:
            return False
        found = torch.cat(excess)
        error = found.std() / len(found) ** 0.5
        least = torch.maximum(_HARM_ERRORS * error, _HARM_SHARE * without.mean())
        return bool(found.mean() > least)


def _converged(logits: Tensor, labels: Tensor, tolerance: float) -> float:
    """T of the smallest NLL, its logarithm within a tolerance."""

    def objective(log_temperature: float) -> float:
        return _nll(logits / float(np.exp(log_temperature)), labels)

    # The NLL is convex in 1/T, so the bounded search meets its only minimum.
    found = minimize_scalar(
        objective, bounds=np.log(_BOUNDS), method="bounded", options={"xatol": tolerance}
    )
    return float(np.exp(found.x))


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """NLL of each sample, (N,)."""
    return -logits.log_softmax(-1).gather(1, labels[:, None]).squeeze(1)


def _nll(logits: Tensor, labels: Tensor) -> float:
    return float(nll(logits.log_softmax(-1).unsqueeze(0), labels))


def _ece(logits: Tensor, labels: Tensor) -> float:
    return float(ece(logits.softmax(-1), labels))


METHODS.register(
    MethodInfo(
        name="temperature",
        kind="posthoc",
        title="temperature scaling",
        paper="Guo et al., ICML",
        year=2017,
        url="https://arxiv.org/abs/1706.04599",
        formula=r"""
            p = \operatorname{softmax}(z / T),
            \quad T = \operatorname{argmin}_T \sum_{i \in \mathrm{calib}}
                -\log \operatorname{softmax}(z_i / T)_{y_i}
        """,
        bibtex=GUO,
        params=TemperatureParams,
        implementation=TemperatureScaling,
    ),
)
