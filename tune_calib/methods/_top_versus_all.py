"""Top-versus-all calibration (Le Coz et al., NeurIPS 2024): is the predicted class the true one?

The objective is the binary cross-entropy of the largest probability against whether the prediction
is right. It needs no probabilities of the other classes, of which most are near 0.
"""

from math import log

import numpy as np
import torch
from torch import Tensor

from tune_calib.methods._functional import weighted_mean
from tune_calib.methods._posthoc import least_temperature
from tune_calib.metrics.refinement import BOUNDS, parts_of

_GRID = np.linspace(log(BOUNDS[0]), log(BOUNDS[1]), 25)  # of log T
_NEAR = np.array([-log(2), 0, log(2)])  # around the log T of the full fit, for that of a fold
_LOWEST = -100.0  # logarithm, as in PyTorch


def top_versus_all_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy (N,) of the top label of logits (N, C), in nats.

    Whether the top label is right has no gradient. Logarithms are at least -100.
    """
    log_probs = logits.log_softmax(-1)
    highest, first = log_probs.max(-1, keepdim=True)
    others = log_probs.scatter(-1, first, -torch.inf).logsumexp(-1)
    log_likelihoods = torch.where(first[:, 0] == labels, highest[:, 0], others)
    return -log_likelihoods.clamp_min(_LOWEST)


def top_versus_all_temperature(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None, centre: float | None = None
) -> float:
    """Return the T in ``BOUNDS``, or near a ``centre``, that minimises the mean loss."""

    def objective(log_temperature: float) -> float:
        losses = []
        for rows in parts_of(logits):
            scaled = logits[rows] / float(np.exp(log_temperature))
            losses.append(top_versus_all_losses(scaled, labels[rows]))
        return float(weighted_mean(torch.cat(losses), weights))

    if centre is None:
        return least_temperature(objective, _GRID)
    return least_temperature(objective, log(centre) + _NEAR, tolerance=1e-3)
