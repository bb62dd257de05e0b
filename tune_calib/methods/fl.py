"""Focal loss (Lin et al., ICCV 2017; for calibration: Mukhoti et al., NeurIPS 2020).

https://arxiv.org/abs/2002.09437. Samples that the network already predicts with confidence get less
weight. 1 - p is computed from log p, so that it is not rounded to 0 near p = 1.
"""

from pydantic import Field
from torch import Tensor

from tune_calib.methods._base import NetworkMethod
from tune_calib.methods._functional import focal_terms
from tune_calib.spec.methods import METHODS, Params, cited


class FocalParams(Params):
    gamma: float = Field(3.0, ge=0)
    """Exponent; 0 gives the cross entropy."""


class Focal(NetworkMethod):
    """Mean of ``(1 - p[y]) ** gamma * -log p[y]``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        return focal_terms(logits, labels, self.params.gamma).mean()


METHODS.register(
    name="fl",
    title="focal loss",
    **cited("Mukhoti et al., NeurIPS", "lin2017focal", "mukhoti2020calibrating"),
    formula=r"L = \frac{1}{N} \sum_i (1 - p_{i,y_i})^\gamma (-\log p_{i,y_i})",
    params=FocalParams,
    implementation=Focal,
    recipe="focal",
)
