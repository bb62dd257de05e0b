"""AdaFocal (Ghosh et al., NeurIPS 2022, https://arxiv.org/abs/2211.11838): feedback on gamma.

A focal loss with one exponent for each bin of the true class's probability. After each epoch, the
exponent is updated by the bin's gap between confidence and accuracy on held-out data. Negative
exponents give an inverse focal loss, for under-confident bins.

The feedback comes from ``calib``. Differences from the authors' code: the bins are part of the
checkpoint (theirs are written to a text file and never read back), and 1 - p is computed from
log p, so that it is not rounded to 0 near p = 1.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.errors import DivergedError
from tune_calib.methods._base import NetworkContext, NetworkMethod
from tune_calib.methods._functional import label_log_probs, one_minus_exp
from tune_calib.metrics.binning import BinTable, adaptive_table
from tune_calib.spec.methods import METHODS, Params, cited

SHIFT = 1e-20  # keeps the gradient of exponents below 1 finite at probability 1


class AdaFocalParams(Params):
    bins: int = Field(15, ge=1)
    """Number of bins."""
    lam: float = Field(1.0, ge=0)
    """Rate at which a gap changes an exponent."""
    gamma_initial: float = 1.0
    """Initial exponent of every bin."""
    switch_pt: float = Field(0.2, ge=0)
    """An exponent closer to 0 than this changes its sign."""
    gamma_max: float = Field(20.0, gt=0)
    """Largest exponent."""
    gamma_min: float = Field(-2.0, lt=0)
    """Smallest exponent."""


def update(
    gamma: Tensor, logits: Tensor, labels: Tensor, params: AdaFocalParams
) -> tuple[BinTable, Tensor]:
    """Compute new equal-mass bins, and the exponents (B,) float64 updated by their gaps.

    The bins are those of held-out logits (N, C), in single precision as in the authors' code.
    """
    # As in the authors' code, the bins are made from the largest probabilities, although a sample
    # is assigned to its bin by the probability of the true class.
    table = adaptive_table(logits.softmax(1).float(), labels, len(gamma))
    gap = table.gap.to(gamma)
    moved = gamma * (params.lam * torch.where(gamma > 0, gap, -gap)).exp()
    switched = torch.where(gamma > 0, -params.switch_pt, params.switch_pt).to(gamma)
    moved = torch.where(moved.abs() < params.switch_pt, switched, moved)
    return table, moved.clamp(params.gamma_min, params.gamma_max)


class AdaFocal(NetworkMethod):
    """Mean of ``(1 - sign(g) p[y]) ** |g| * -log p[y]``, where g is the exponent of p[y]'s bin."""

    lower: Tensor
    upper: Tensor
    gamma: Tensor

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        # Buffers, since a resumed run must continue with the bins of the earlier epochs.
        edges = torch.arange(params.bins + 1, dtype=torch.float64) / params.bins
        self.register_buffer("lower", edges[:-1].clone())
        self.register_buffer("upper", edges[1:].clone())
        self.register_buffer("gamma", torch.full_like(self.lower, params.gamma_initial))

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        log_probs = label_log_probs(logits, labels)
        gamma = self.exponents(log_probs.detach().exp()).to(log_probs.dtype)
        focal = one_minus_exp(log_probs)
        inverse = 1 - gamma.sign() * log_probs.exp()
        # Two forms, since 1 - p loses digits near p = 1 and 1 + p does not.
        base = torch.where(gamma > 0, focal, inverse) + SHIFT
        return (base ** gamma.abs() * -log_probs).mean()

    def exponents(self, probs: Tensor) -> Tensor:
        """Return the exponent of each sample from its p[y]: (N,) to (N,) float64."""
        index = torch.bucketize(probs.to(self.lower.dtype), self.lower[1:], right=True)
        return self.gamma[index]

    def end_epoch(self, epoch: int, feedback: Any) -> dict[str, float]:
        if not bool(feedback.logits.isfinite().all()):
            raise DivergedError(f"the logits of epoch {epoch + 1} are not finite")
        bins, gamma = update(self.gamma, feedback.logits, feedback.labels, self.params)
        self.lower.copy_(bins.lower)
        self.upper.copy_(bins.upper)
        self.gamma.copy_(gamma)
        lowest, highest = self.gamma.aminmax()
        return {"adafocal/gamma_min": float(lowest), "adafocal/gamma_max": float(highest)}


METHODS.register(
    name="adafocal",
    title="AdaFocal: focal loss with calibration feedback",
    **cited("Ghosh et al., NeurIPS", "ghosh2022adafocal"),
    formula=r"""
        L = \frac{1}{N} \sum_i (1 - \operatorname{sign}(g_i) \, p_{i,y_i})^{|g_i|}
            (-\log p_{i,y_i}), \quad g_i = g_b \text{ of the bin } b \text{ of } p_{i,y_i};
        \quad g_b \leftarrow g_b \, e^{\operatorname{sign}(g_b) \, \lambda \,
            (\mathrm{conf}_b - \mathrm{acc}_b)} \text{ after each epoch}
    """,
    params=AdaFocalParams,
    implementation=AdaFocal,
    needs=frozenset({"calib_pass"}),
    recipe="focal",
)
