"""Parts of structured vector and matrix scaling (Berta et al., arXiv 2511.03685).

The best temperature is followed by a mixture with the uniform distribution of weight 1 / (n + 1),
which bounds all logarithms, and by an affine map of the log-probabilities with ridge penalties on
the deviation from the identity. Each penalty grows with the number of penalised parameters and
falls with n.
"""

from abc import abstractmethod
from collections.abc import Mapping
from math import log

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._affine import EXACT, ROUGH, Affine, Ridge, identity, mapped, minimised
from tune_calib.methods._posthoc import UNCONVERGED, Fit, FittedAlone
from tune_calib.methods.temperature import converged
from tune_calib.spec.methods import Params


class StructuredParams(Params):
    lambda_intercept: float = Field(1.0, gt=0)
    """Penalty of the squared intercepts, times C / n."""
    lambda_diagonal: float = Field(1.0, gt=0)
    """Penalty of the squared deviations of the diagonal from 1, times C / n."""


class Structured(FittedAlone):
    """A temperature, a mixture, and a ridge fit around the identity."""

    @abstractmethod
    def begin(self, inputs: Tensor) -> tuple[Ridge, Affine]:
        """Return the penalty, and the identity in the shape of the map, for inputs (n, C)."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        """Fit the temperature, then the map, a strictly convex problem."""
        temperature = converged(logits, labels)
        state, is_converged = self._fit(logits, labels, temperature, EXACT)
        flags = frozenset() if is_converged else frozenset({UNCONVERGED})
        return Fit(state, {"temperature": temperature}, flags)

    def fit_fold(self, logits: Tensor, labels: Tensor, whole: Fit) -> Fit:
        """Fit with a larger tolerance."""
        return Fit(self._fit(logits, labels, converged(logits, labels, ROUGH), ROUGH)[0])

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Scale the logits, mix in the uniform distribution and apply the map."""
        inputs = _mixed(logits / state["temperature"], state["samples"])
        return mapped(inputs, state["weight"], state["intercept"])

    def _fit(
        self, logits: Tensor, labels: Tensor, temperature: float, tolerance: float
    ) -> tuple[dict[str, Tensor], bool]:
        samples = logits.new_tensor(len(labels))
        inputs = _mixed(logits / temperature, samples)
        found = minimised(inputs, labels, *self.begin(inputs), tolerance)
        own = {"temperature": logits.new_tensor(temperature), "samples": samples}
        return {**own, **found.state()}, found.is_converged


def _mixed(logits: Tensor, samples: Tensor) -> Tensor:
    """Return log-probabilities mixed with the uniform distribution of weight 1 / (n + 1)."""
    own = logits.log_softmax(-1) + (samples / (samples + 1)).log()
    return torch.logaddexp(own, -(samples + 1).log() - log(logits.shape[-1]))


def diagonal(inputs: Tensor, params: StructuredParams) -> tuple[Ridge, Affine]:
    """Return the penalty and the start of a diagonal map."""
    samples, classes = inputs.shape
    start = identity(inputs)
    ridge = Ridge(
        params.lambda_diagonal * classes / samples,
        start.weight,
        params.lambda_intercept * classes / samples,
    )
    return ridge, start
