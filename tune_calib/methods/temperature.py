"""Temperature scaling (Guo et al., ICML 2017): softmax(z / T), T fitted on ``calib``."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from tune_calib.methods._base import PostHocMethod, nll
from tune_calib.metrics.calibration import ece
from tune_calib.registry import METHODS, MethodInfo, Params

_LOG_BOUNDS = (np.log(1e-2), np.log(1e2))


class TemperatureParams(Params):
    """Hyper-parameters.

    Attributes:
        fit: ``nll`` to convergence (default); ``grid_ece`` and ``grid_nll`` take the first
            minimum over T = 0.1, 0.2, ..., 10.0 as the papers' code does.
    """

    fit: Literal["nll", "grid_ece", "grid_nll"] = "nll"


class TemperatureScaling(PostHocMethod):
    """One temperature a head; the accuracy does not change."""

    temperature: Tensor

    def fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fit T of every head: (K, N, C), (N,)."""
        fit_one = self._converged if self.params.fit == "nll" else self._grid
        values = [fit_one(head.double(), labels) for head in logits]
        self.temperature = torch.tensor(values, dtype=torch.float64, device=logits.device)

    def transform(self, logits: Tensor) -> Tensor:
        """Divide by the temperature."""
        return (logits.double() / self.temperature[:, None, None]).to(logits.dtype)

    def fitted(self) -> dict[str, Tensor]:
        """The temperatures."""
        return {"temperature": self.temperature}

    def _converged(self, logits: Tensor, labels: Tensor) -> float:
        def objective(log_temperature: float) -> float:
            return _nll(logits / float(np.exp(log_temperature)), labels)

        # The NLL is convex in 1/T, so the bounded search meets its only minimum.
        found = minimize_scalar(
            objective, bounds=_LOG_BOUNDS, method="bounded", options={"xatol": 1e-8}
        )
        return float(np.exp(found.x))

    def _grid(self, logits: Tensor, labels: Tensor) -> float:
        score: Callable[[Tensor, Tensor], float] = _ece if self.params.fit == "grid_ece" else _nll
        # Summed, not multiplied, so that the grid has the rounding of the authors' loop.
        grid = np.cumsum(np.full(100, 0.1))
        values = [score(logits / float(temperature), labels) for temperature in grid]
        return float(grid[int(np.argmin(values))])


def _nll(logits: Tensor, labels: Tensor) -> float:
    return float(nll(logits.log_softmax(-1).unsqueeze(0), labels))


def _ece(logits: Tensor, labels: Tensor) -> float:
    return float(ece(logits.softmax(-1), labels))


METHODS.register(
    "temperature",
    MethodInfo(
        name="temperature",
        kind="posthoc",
        title="temperature scaling",
        paper="Guo et al., ICML",
        year=2017,
        url="https://arxiv.org/abs/1706.04599",
        params=TemperatureParams,
        implementation=TemperatureScaling,
    ),
)
