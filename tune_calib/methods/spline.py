"""Spline calibration of the top label (Gupta et al., ICLR 2021).

The samples of ``calib`` are sorted by their confidence s. A natural cubic spline with evenly spaced
knots, as a function of the fraction of samples below, is fitted by least squares to the cumulative
correctness minus the cumulative confidence. Its slope plus s is the calibrated confidence at s,
linear between samples and constant outside. Samples of equal confidence get the mean of their
values.

The authors do not say what the other classes get. Here they share the rest of the mass in their
original proportions. A calibrated confidence below the probability of the second class is raised
to just above it, by a millionth, so that the accuracy does not change. The confidence is clipped to
[1e-12, 1 - 1e-12].
"""

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import Field
from scipy.interpolate import CubicSpline
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone, interpolate, with_confidence
from tune_calib.spec.methods import METHODS, Params, cited


class SplineParams(Params):
    knots: int = Field(6, ge=3, le=100)
    """Number of knots of the spline."""


class SplineCalibration(FittedAlone):
    """A calibration curve of the confidence."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        largest, predicted = logits.softmax(-1).max(-1)
        confidence, order = largest.cpu().sort(stable=True)
        correct = (predicted == labels).double().cpu()[order]
        places = np.linspace(0, 1, len(labels))
        gaps = (correct - confidence).cumsum(0).numpy() / len(labels)
        knots = np.linspace(0, 1, self.params.knots)
        # The spline is linear in its values at the knots: column k is the spline of a 1 at knot k.
        basis = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
        heights = np.linalg.lstsq(basis(places), gaps, rcond=None)[0]
        calibrated = confidence + torch.from_numpy(basis(places, 1) @ heights)
        single, which, counts = confidence.unique_consecutive(
            return_inverse=True, return_counts=True
        )
        means = torch.zeros_like(single).index_add_(0, which, calibrated) / counts
        curve = torch.stack([single, means])
        # A single knot means a constant curve, which needs two ends.
        curve = curve if len(single) > 1 else curve.expand(2, 2)
        return Fit({"knots": curve.to(logits.device)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        confidence = logits.log_softmax(-1).amax(-1, keepdim=True).exp()
        return with_confidence(logits, interpolate(confidence.T, state["knots"][None]).T)


METHODS.register(
    name="spline",
    title="spline calibration of the top label",
    **cited("Gupta et al., ICLR", "gupta2021calibration"),
    formula=r"""
        q_{\hat y} = s + g'(t(s)), \quad s = p_{\hat y} = \max_k p_k,
        \quad q_k = \frac{1 - q_{\hat y}}{1 - s} p_k \text{ for } k \neq \hat y,
        \quad g = \operatorname{argmin}_g \sum_i \left(g\left(\tfrac{i}{N}\right)
            - \frac{1}{N} \sum_{j \leq i} ([\hat y_j = y_j] - s_j)\right)^2
    """,
    params=SplineParams,
    implementation=SplineCalibration,
    keeps_accuracy=True,
)
