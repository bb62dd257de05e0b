"""Variational two-stage training (Jordahn and Olmos, ICML 2024, https://arxiv.org/abs/2405.01196).

It differs from two-stage training in that the last hidden layer is Gaussian: one MLP gives its
mean, another its log-variance, and the loss adds the KL divergence from N(0, I) divided by its
width. In the formula, mu(h) and v(h) are mean and variance, and w is ``kl_weight``.

Differences from the authors' code (Decoupled-Layers-for-Calibrated-NNs): the epoch is selected by
the NLL of the result of ``predict``, not by the loss of one random draw, and the body stays in
evaluation mode unless ``bn_mode`` of the slot is different.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.determinism import child_seed
from tune_calib.methods._base import HeadContext, HeadMethod, log_mean_exp, nll
from tune_calib.methods._functional import gaussian_kl
from tune_calib.models.heads import apply_stack, init_stack
from tune_calib.spec.methods import METHODS, Params, cited
from tune_calib.spec.slots.head import HeadSlot

NOISE_BLOCK = 256  # number of samples whose noise at evaluation is drawn together


class VariationalTwoStageParams(Params):
    latent: int = Field(256, ge=1)
    """Width Z of the Gaussian layer; the layers before have width 3Z."""
    kl_weight: float = Field(1.0, ge=0)
    """Weight of the KL divergence divided by Z. The authors' program uses 1; it also defines a
    weight of 0.01, which is never used."""
    evaluation: Literal["mc", "mean"] = "mc"
    """How the head is evaluated.

    - `mc`: the mean of the probabilities of `mc_samples` draws, as in the authors' program.
    - `mean`: the mean of the Gaussian, a branch that is commented out in the authors' program.
    """
    mc_samples: int = Field(10, ge=1)
    """Number of draws with `evaluation` = `mc`."""


class VariationalTwoStage(HeadMethod):
    """Logits linear in z = mu + exp(logvar / 2) eps, where a log-sigmoid keeps the variance < 1."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        latent = self.params.latent
        hidden = (context.width, 3 * latent, latent)
        # One stack with the output layer, with the initial weights of TST under the same seed.
        mean = init_stack((*hidden, context.classes), self.seeds, context.device)
        own_seeds = [child_seed(seed, "variance") for seed in self.seeds]
        variance = init_stack(hidden, own_seeds, context.device)
        self.parameters = {f"mean.{name}": mean[name] for name in variance}
        self.parameters |= {f"variance.{name}": tensor for name, tensor in variance.items()}
        self.parameters |= {f"output.0.{kind}": mean[f"2.{kind}"] for kind in ("weight", "bias")}
        self.kl_weight = self.per_head("kl_weight")
        self.kl = torch.zeros_like(self.kl_weight)

    def draw(self, step: int, samples: int) -> dict[str, Tensor]:
        # A resumed run therefore needs no state of a generator.
        size, noise = (samples, self.params.latent), []
        for seed in self.seeds:
            # Whose numbers on a GPU differ from those on a CPU.
            chance = torch.Generator(self.context.device)
            chance.manual_seed(child_seed(seed, "eps", step))
            noise.append(torch.randn(size, generator=chance, device=chance.device))
        return {"noise": torch.stack(noise)}

    def training_logits(self, features: Tensor) -> Tensor:
        mean, log_variance = self.moments(features)
        # Stored, because loss() receives only probabilities.
        self.kl = gaussian_kl(mean, log_variance)
        return self.decode(mean, log_variance, self.drawn["noise"])

    def loss(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        kl, self.kl = self.kl, self.kl.detach()  # without the graph, which the step frees
        return nll(log_probs, labels) + self.kl_weight * kl

    def predict(self, features: Tensor, first: int = 0) -> Tensor:
        mean, log_variance = self.moments(features)
        if self.params.evaluation == "mean":
            return self._output(mean)
        noises = (self.noise_at(first, draw, mean) for draw in range(self.params.mc_samples))
        draws = (self.decode(mean, log_variance, noise) for noise in noises)
        return log_mean_exp(logits.log_softmax(-1) for logits in draws)

    def draws(self) -> bool:
        return bool(self.params.evaluation == "mc")

    def moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of z: (B, D) or (K, B, D) to (K, B, Z) each."""
        mean = apply_stack(self._part("mean."), features, ["relu"])
        return mean, F.logsigmoid(apply_stack(self._part("variance."), features, ["relu"]))

    def noise_at(self, first: int, draw: int, like: Tensor) -> Tensor:
        """Draw noise (K, B, Z), which depends on head seed, draw and position of the sample."""
        last = first + like.shape[1] - 1
        # In blocks at fixed positions, so that a later part of a split gets its own noise without
        # drawing the noise of all samples before it.
        blocks = range(first // NOISE_BLOCK, last // NOISE_BLOCK + 1)
        skipped = first - blocks[0] * NOISE_BLOCK
        parts = []
        for block in blocks:
            draw_block = partial(self._draw_block, draw, block, like.shape[2])
            parts.append(self.keep((draw, block), draw_block)["noise"])
        return torch.cat(parts, 1)[:, skipped : skipped + like.shape[1]]

    def _draw_block(self, draw: int, block: int, width: int) -> dict[str, Tensor]:
        noise = []
        for head_seed in self.seeds:
            seed = child_seed(child_seed(head_seed, "mc eps", draw), "block", block)
            chance = torch.Generator().manual_seed(seed)
            noise.append(torch.randn(NOISE_BLOCK, width, generator=chance))
        return {"noise": torch.stack(noise)}

    def decode(self, mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
        """Return the logits (K, B, C) of z for standard normal noise (K, B, Z)."""
        return self._output(mean + (0.5 * log_variance).exp() * noise)

    def _output(self, latent: Tensor) -> Tensor:
        return apply_stack(self._part("output."), latent, [])

    def _part(self, prefix: str) -> dict[str, Tensor]:
        names = [name for name in self.parameters if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.parameters[name] for name in names}


METHODS.register(
    name="vtst",
    title="variational two-stage training",
    **cited("Jordahn and Olmos, ICML", "jordahn2024decoupling"),
    formula=r"""
        L = \frac{1}{N} \sum_i \Big[ -\log \operatorname{softmax}(W u_i + b)_{y_i}
            - \frac{w}{2 Z} \sum_j (1 + \log v_{i,j} - \mu_{i,j}^2 - v_{i,j}) \Big],
        \quad u_i = \mu(h_i) + \sqrt{v(h_i)} \odot \epsilon_i, \quad \epsilon_i \sim N(0, I)
    """,
    params=VariationalTwoStageParams,
    implementation=VariationalTwoStage,
    per_head=frozenset({"kl_weight"}),
    recipe="tst",
)
