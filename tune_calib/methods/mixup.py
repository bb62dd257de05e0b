"""mixup (Zhang et al., ICLR 2018, https://arxiv.org/abs/1710.09412): train on convex mixtures.

Each batch is mixed with a permutation of itself by one Beta-distributed share, which also mixes the
losses.

Differences from the authors' code (facebookresearch/mixup-cifar10): none in the arithmetic. Share
and permutation come from the generator of the epoch instead of the global generators of numpy and
torch.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import Batch, NetworkMethod, Step
from tune_calib.spec.methods import METHODS, Params, cited


class MixupParams(Params):
    alpha: float = Field(1.0, ge=0)
    """Both parameters of the Beta distribution of the share; 0 disables mixing."""


def draw_beta(alpha: float, generator: torch.Generator) -> float:
    """Draw from Beta(alpha, alpha) by two gamma variables; return 1 if alpha <= 0."""
    if alpha <= 0:
        return 1.0
    # torch.distributions accepts no generator, and no public function draws from a gamma
    # distribution (torch 2.12 to 2.15).
    shape = torch.full((2,), alpha, dtype=torch.float64)
    first, second = torch._standard_gamma(shape, generator=generator).tolist()
    if first == second:  # with a tiny alpha, both underflow; the limit is a fair coin
        return float(torch.randint(2, (), generator=generator))
    return float(first / (first + second))


def mix(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Return ``share * first + (1 - share) * second`` for a share () float64."""
    return share * first + (1 - share) * second


def mixup_loss(logits: Tensor, labels: Tensor, partners: Tensor, share: Tensor) -> Tensor:
    """Return the mean cross entropy to both labels of a mixture, weighted by their shares."""
    label_loss, partner_loss = F.cross_entropy(logits, labels), F.cross_entropy(logits, partners)
    # Of the type of the losses, which a share in double precision would change.
    share, rest = share.to(logits.dtype), (1 - share).to(logits.dtype)
    return share * label_loss + rest * partner_loss


class Mixup(NetworkMethod):
    """One share and one permutation per batch. Evaluation uses unmixed images."""

    def draw(self, samples: int) -> dict[str, Tensor]:
        share = torch.tensor(draw_beta(self.params.alpha, self.chance), dtype=torch.float64)
        return {"share": share, "order": torch.randperm(samples, generator=self.chance)}

    def step(self, network: torch.nn.Module, batch: Batch) -> Step:
        share, order = self.drawn["share"], self.drawn["order"]
        logits = network(mix(batch.images, batch.images[order], share)).logits
        return Step(mixup_loss(logits, batch.labels, batch.labels[order], share), logits)


METHODS.register(
    name="mixup",
    title="mixup",
    **cited("Zhang et al., ICLR", "zhang2018mixup"),
    formula=r"""
        L = \lambda L_{\mathrm{CE}}(f(\tilde x), y) + (1 - \lambda) L_{\mathrm{CE}}(f(\tilde x),
            y_\pi), \quad \tilde x = \lambda x + (1 - \lambda) x_\pi,
        \quad \lambda \sim \mathrm{Beta}(\alpha, \alpha)
    """,
    params=MixupParams,
    implementation=Mixup,
    pairs_by_order=True,
    recipe="plp",
)
