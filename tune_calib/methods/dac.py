"""Density-aware calibration, DAC (Tomani et al., ICML 2023), with the features of one layer.

Logits are divided by a linear function of s, the distance of the features, scaled to unit length,
to the nearest neighbour number k, as in the authors' program: the fewer samples lie around, the
larger is s. Its weight, which is not negative, and the intercept minimise the Brier score, from the
best single temperature. The trial is flagged if the solver does not converge, if no temperature is
the best, or if a divisor of `calib` is the least one.

Differences from that program: it sums over layers of the whole network, but a feature bank holds
only the last one. Its neighbours are samples of train, ours the other samples of `calib`, so that
an estimator or an export needs no training data. k is 10, since its 50 and 200 (on CIFAR-10 and
CIFAR-100) are of many more neighbours. The divisor is at least a hundredth of the best single
temperature; there, it is at least 1e-20. No second map follows.
"""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import normalize

from tune_calib.methods._posthoc import Fit, FittedAlone, Floats
from tune_calib.methods.temperature import converged
from tune_calib.metrics.binning import at_labels
from tune_calib.metrics.refinement import has_best_temperature
from tune_calib.spec.methods import METHODS, Params, cited

_LOWEST = 0.01  # divisor, as a share of the best single temperature
_DISTANCES = 2**22  # computed at once
_EQUAL = 1e-12  # squared distance below which features are those of the same sample


class DacParams(Params):
    neighbours: int = Field(10, ge=1)
    """Number k of the neighbour; at most all other samples of `calib`."""


class DensityAwareScaling(FittedAlone):
    """A divisor for each sample, from the distance of its features to those of ``calib``."""

    reads_features = True

    def fit_one(self, logits: Tensor, labels: Tensor, *inputs: Tensor) -> Fit:
        (features,) = inputs
        neighbours = unit(features)
        distances = self.distances(features, neighbours)
        temperature, mean = converged(logits, labels, 1e-3), distances.mean().clamp_min(1e-12)
        best = _least(logits / temperature, labels, distances / mean)
        state = {
            "neighbours": neighbours,
            "slope": temperature * best.x[0] / mean,
            "intercept": logits.new_tensor(temperature * best.x[1]),
            "lowest": logits.new_tensor(_LOWEST * temperature),
        }
        record = {"slope": float(state["slope"]), "intercept": float(state["intercept"])}
        divisors = state["slope"] * distances + state["intercept"]
        is_at_bound = bool((divisors <= state["lowest"]).any())
        is_at_bound |= not has_best_temperature(logits, labels)
        return Fit(state, {**record, "objective": float(best.fun)}, best.success, is_at_bound)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        (features,) = inputs
        distances = self.distances(features, state["neighbours"])
        divisors = state["slope"] * distances + state["intercept"]
        return logits / torch.maximum(divisors, state["lowest"])[:, None]

    def distances(self, features: Tensor, neighbours: Tensor) -> Tensor:
        """Return the distances (N,) of features (N, D) to their neighbours number k."""
        return nearest(unit(features), neighbours, self.params.neighbours).amax(-1)


def unit(features: Tensor) -> Tensor:
    """Scale features (N, D) to unit length, in single precision; zeros stay zeros."""
    return normalize(features, dim=-1).float()


def nearest(features: Tensor, neighbours: Tensor, count: int) -> Tensor:
    """Return the distances of features (N, D) to the nearest of M neighbours (M, D), ascending.

    Neighbours that equal a sample do not count, so that no sample of ``calib`` is its own. There
    are at most ``count`` distances, (N, min(count, M)), and zeros where a sample has fewer.
    """
    features, neighbours = features.double(), neighbours.double()
    lengths, parts = neighbours.square().sum(-1), []
    for rows in features.split(max(1, _DISTANCES // len(neighbours))):
        squares = rows.square().sum(-1, keepdim=True) + lengths - 2 * rows @ neighbours.T
        squares = squares.masked_fill(squares < _EQUAL, torch.inf)
        smallest = squares.topk(min(count, len(neighbours)), dim=-1, largest=False).values
        parts.append(smallest.masked_fill(smallest.isinf(), 0).sqrt())
    return torch.cat(parts)


def _least(logits: Tensor, labels: Tensor, distances: Tensor) -> Any:
    """Return SciPy's result for the slope and the intercept of the least Brier score."""

    def objective(weights: Floats) -> tuple[float, Floats]:
        with torch.enable_grad():
            parameters = torch.from_numpy(weights).to(logits.device).requires_grad_()
            loss = brier_score(logits, labels, distances, parameters)
            (slopes,) = torch.autograd.grad(loss, parameters)
        return loss.item(), slopes.cpu().numpy()

    bounds, options = [(0, None), (None, None)], {"ftol": 1e-12, "gtol": 1e-7}
    results = []
    for start in ((0.0, 1.0), (1.0, 0.0)):  # all by the intercept, or by the distance
        results.append(minimize(objective, start, jac=True, bounds=bounds, options=options))
    return min(results, key=lambda result: float(result.fun))


def brier_score(logits: Tensor, labels: Tensor, distances: Tensor, weights: Tensor) -> Tensor:
    """Return the mean Brier score of logits (N, C), in units of the best single temperature.

    ``weights`` (2,) are the slope over distances (N,) and the intercept of the divisors.
    """
    divisors = (weights[0] * distances + weights[1]).clamp_min(_LOWEST)
    probs = (logits / divisors[:, None]).softmax(-1)
    return (probs.square().sum(-1) - 2 * at_labels(probs, labels) + 1).mean()


METHODS.register(
    name="dac",
    title="density-aware calibration",
    **cited("Tomani et al., ICML", "tomani2023beyond"),
    formula=r"""
        p = \operatorname{softmax}(z / S),
        \quad S = \max(w_1 s + w_0, T / 100),
        \quad s = \left\| \frac{h}{\|h\|} - \frac{h_{(k)}}{\|h_{(k)}\|} \right\|,
        \quad w = \operatorname{argmin}_{w_1 \geq 0} \sum_{i \in \mathrm{calib}} \sum_c
            \left(p_{ic} - [y_i = c]\right)^2
    """,
    params=DacParams,
    implementation=DensityAwareScaling,
    keeps_accuracy=True,
)
