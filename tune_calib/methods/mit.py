"""MIT, mixup inference in training (Wang et al., CVPR 2023): train on unmixed outputs.

"On the Pitfall of Mixup for Uncertainty Calibration"; code:
https://github.com/dengbaowang/Mixup-Inference-in-Training.

Two mixtures of the same two samples go through the network, and the pair of linear equations is
solved for the outputs of the samples themselves, so that the loss needs no mixed labels. MIT-L
solves the equations at the logits. MIT-A, the paper's final method, solves them at every stage and
mixes again before the next. In the formula, A is a sample, B its partner, and f_s a stage.

Differences from the authors' code: shares closer than 1e-4 are redrawn (with margin 0, the authors'
code allows them and divides by zero). Random numbers come from the generator of the epoch. For
networks other than ResNets, the stages are our choice (``Network.stages``).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.errors import UserError
from tune_calib.methods._base import Batch, NetworkMethod, Step
from tune_calib.methods.mixup import draw_beta, mix
from tune_calib.spec.methods import METHODS, Params, cited

SMALLEST_GAP = 1e-4  # of two shares; below it, the mixtures can hardly be solved numerically
_ATTEMPTS = 100_000  # limits the search where margin and alpha make suitable shares very rare


class MitParams(Params):
    alpha: float = Field(1.0, ge=0)
    """Both parameters of the Beta distribution of the shares; 0 disables mixing."""
    margin: float = Field(0.5, ge=0, le=0.9)
    """Smallest difference between the two shares. The authors' README uses 0 and 0.5."""


def draw_shares(draw: Callable[[], float], margin: float) -> tuple[float, float]:
    """Draw the shares lam1 >= 1/2 >= lam2 of the first sample, at least ``margin`` apart."""
    for _ in range(_ATTEMPTS):
        first, second = draw(), draw()
        shares = max(first, 1 - first), min(second, 1 - second)
        if shares[0] - shares[1] >= max(margin, SMALLEST_GAP):
            return shares
    raise UserError(f"found no two shares {margin} apart; use a smaller margin or alpha")


def unmix(mixed1: Tensor, mixed2: Tensor, share1: Tensor, share2: Tensor) -> tuple[Tensor, Tensor]:
    """Solve two mixtures for their components, the inverse of ``mix`` with share1 > share2."""
    gap = share1 - share2
    first = ((1 - share2) * mixed1 - (1 - share1) * mixed2) / gap
    second = (share1 * mixed2 - share2 * mixed1) / gap
    return first, second


def mit_loss(first: Tensor, second: Tensor, labels: Tensor, partners: Tensor) -> Tensor:
    """Return the average of the mean cross entropies of both unmixed logits (N, C)."""
    return 0.5 * F.cross_entropy(first, labels) + 0.5 * F.cross_entropy(second, partners)


class MitLogits(NetworkMethod):
    """MIT-L: the mixtures are solved once, at the logits. Evaluation is the usual forward pass."""

    count = 1  # of sections

    def draw(self, samples: int) -> dict[str, Tensor]:
        order = torch.randperm(samples, generator=self.chance)
        draw = partial(draw_beta, self.params.alpha, self.chance)
        shares = [draw_shares(draw, self.params.margin) for _ in range(self.count)]
        return {"order": order, "shares": torch.tensor(shares, dtype=torch.float64)}

    def sections(self, network: Any) -> list[Any]:
        """Return the parts of the network after which the mixtures are solved: all of it."""
        return [lambda images: network(images).logits]

    def step(self, network: Any, batch: Batch) -> Step:
        order = self.drawn["order"]
        first, second = batch.images, batch.images[order]
        sections = self.sections(network)
        for section, (share1, share2) in zip(sections, self.drawn["shares"], strict=True):
            mixed1 = section(mix(first, second, share1))
            mixed2 = section(mix(first, second, share2))
            first, second = unmix(mixed1, mixed2, share1, share2)
        return Step(mit_loss(first, second, batch.labels, batch.labels[order]), first)


class MitAll(MitLogits):
    """MIT-A: the mixtures are solved after every stage; pooling and head are the last section."""

    def adapt(self, network: Any) -> None:
        self.count = len(network.stages())

    def sections(self, network: Any) -> list[Any]:
        # Built for each step: as an attribute, these wrappers would put the network's weights into
        # the checkpoint and the optimiser a second time.
        *stages, last = network.stages()
        return [*stages, torch.nn.Sequential(last, network.head)]


_FORMULA_L = r"""
L = \tfrac{1}{2} L_{\mathrm{CE}}(o_A, y_A) + \tfrac{1}{2} L_{\mathrm{CE}}(o_B, y_B),
\quad o_A = \frac{(1 - \lambda_2) o_1 - (1 - \lambda_1) o_2}{\lambda_1 - \lambda_2},
\quad o_B = \frac{\lambda_1 o_2 - \lambda_2 o_1}{\lambda_1 - \lambda_2},
\quad o_j = f(\lambda_j x_A + (1 - \lambda_j) x_B)
"""

_FORMULA_A = r"""
L = \tfrac{1}{2} L_{\mathrm{CE}}(h_A^{S + 1}, y_A)
    + \tfrac{1}{2} L_{\mathrm{CE}}(h_B^{S + 1}, y_B),
\quad h_A^{s + 1} = \frac{(1 - \lambda_2) o_1 - (1 - \lambda_1) o_2}
    {\lambda_1 - \lambda_2},
\quad h_B^{s + 1} = \frac{\lambda_1 o_2 - \lambda_2 o_1}{\lambda_1 - \lambda_2},
\quad o_j = f_s(\lambda_j h_A^s + (1 - \lambda_j) h_B^s), \quad s = 1, \ldots, S
"""

for _name, _title, _formula, _class, _needs in (
    ("mit_l", "mixup inference in training, at the logits", _FORMULA_L, MitLogits, ()),
    ("mit_a", "mixup inference in training, at every stage", _FORMULA_A, MitAll, ("stages",)),
):
    METHODS.register(
        name=_name,
        title=_title,
        **cited("Wang et al., CVPR", "wang2023pitfall"),
        formula=_formula,
        params=MitParams,
        implementation=_class,
        needs=frozenset({"two_forward_passes", *_needs}),
        pairs_by_order=True,
        recipe="plp",
    )
