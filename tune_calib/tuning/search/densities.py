"""TPE's densities, drawn and evaluated with arrays.

Optuna does without SciPy and inverts the normal distribution number by number, in Python.
"""

from typing import Any

import numpy as np
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.probability_distributions import _BatchedCategoricalDistributions
from scipy.special import ndtr, ndtri

Values = dict[str, np.ndarray]


class Densities(_ParzenEstimator):
    """Optuna's mixture of products of truncated normal and categorical distributions.

    It takes the same numbers from a generator, and its results differ by rounding alone. A range
    with steps is left to Optuna.
    """

    def __init__(self, *observed: Any) -> None:
        super().__init__(*observed)
        parts = dict(zip(self._search_space, self._mixture_distribution.distributions, strict=True))
        self._weights = self._mixture_distribution.weights
        self._choices = {
            name: part.weights
            for name, part in parts.items()
            if isinstance(part, _BatchedCategoricalDistributions)
        }
        self._ranges: dict[str, Any] = {n: p for n, p in parts.items() if n not in self._choices}
        ranges = list(self._ranges.values())
        self._has_steps = any(part.step for part in ranges)
        # Of shape (settings, kernels), and the ends of a range (settings, 1).
        shape = (len(ranges), len(self._weights))
        self._means = np.array([part.mu for part in ranges]).reshape(shape)
        self._widths = np.array([part.sigma for part in ranges]).reshape(shape)
        self._lows = np.array([[part.adapted_low] for part in ranges]).reshape(-1, 1)
        self._highs = np.array([[part.adapted_high] for part in ranges]).reshape(-1, 1)

    def sample(self, rng: np.random.RandomState, size: int) -> Values:
        """Draw points: values by setting, of shape (size,)."""
        if self._has_steps:
            return super().sample(rng, size)
        kernels = rng.choice(len(self._weights), p=self._weights, size=size)
        drawn: Values = {}
        for name, weights in self._choices.items():
            reached = weights[kernels, :-1].cumsum(axis=1) < rng.rand(size)[:, None]
            drawn[name] = reached.sum(axis=1)
        means, widths = self._means[:, kernels], self._widths[:, kernels]
        least = ndtr((self._lows - means) / widths)
        most = ndtr((self._highs - means) / widths)
        quantiles = rng.uniform(size=means.shape)
        numbers = means + widths * ndtri(least + quantiles * (most - least))
        for (name, part), own in zip(self._ranges.items(), numbers, strict=True):
            drawn[name] = np.clip(np.exp(own) if part.is_log else own, part.low, part.high)
        return {name: drawn[name] for name in self._search_space}

    def log_pdf(self, samples_dict: Values) -> np.ndarray:
        """Logarithm of the density at some points, of shape (points,)."""
        if self._has_steps:
            return super().log_pdf(samples_dict)
        # A kernel lies within its range: its mass there is never near zero.
        mass = ndtr((self._highs - self._means) / self._widths)
        mass -= ndtr((self._lows - self._means) / self._widths)
        scales = np.log(np.sqrt(2 * np.pi) * self._widths * mass).sum(axis=0)
        logs = np.log(self._weights) - scales[None]
        for name, weights in self._choices.items():
            logs = logs + np.log(weights.T[samples_dict[name].astype(int)])
        for (name, part), mean, width in zip(
            self._ranges.items(), self._means, self._widths, strict=True
        ):
            values = samples_dict[name]
            values = np.log(values) if part.is_log else values
            logs = logs - 0.5 * ((values[:, None] - mean) / width) ** 2
        largest = logs.max(axis=1, keepdims=True)
        density: np.ndarray = np.log(np.exp(logs - largest).sum(axis=1)) + largest[:, 0]
        return density
