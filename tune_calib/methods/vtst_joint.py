"""The head of variational two-stage training, trained end to end, as the control of V-TST.

It is ``tst_joint`` with the Gaussian last hidden layer of V-TST (Jordahn and Olmos, arXiv
2405.01196) and its loss. As a control it has no recipe of its own and is trained like the other
networks of the data set.

The head ``vtst`` draws separate noise for each sample at evaluation. Here all samples are evaluated
with the same draws, because a network does not know the position of a batch within its split.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.determinism import child_seed
from tune_calib.methods._base import Batch, NetworkContext, NetworkMethod, Step, log_mean_exp
from tune_calib.methods._functional import gaussian_kl
from tune_calib.methods.tst_joint import linear_layers
from tune_calib.methods.vtst import VariationalTwoStageParams
from tune_calib.models.network import Output
from tune_calib.spec.methods import METHODS, cited


class JointVariational(NetworkMethod):
    """MLPs D, 3Z, Z for the mean and the log-variance of z, and a layer Z, C for the logits."""

    noise: Tensor

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        hidden = (context.width, 3 * params.latent, params.latent)
        # Mean and output layers start with the weights of `tst_joint` under the same seed.
        sizes = (*hidden, context.classes)
        first, second, self.output = linear_layers(sizes, context.seed, "tst head")
        self.mean = nn.Sequential(first, nn.ReLU(), second)
        first, second = linear_layers(hidden, context.seed, "variance")
        self.variance = nn.Sequential(first, nn.ReLU(), second)
        chance = torch.Generator().manual_seed(child_seed(context.seed, "mc eps"))
        # In the checkpoint, because an exported model has no seed.
        drawn = torch.randn(params.mc_samples, params.latent, generator=chance)
        self.register_buffer("noise", drawn)

    def forward(self, network: Any, images: Tensor) -> Output:
        features = network.features(images)
        mean, log_variance = self.moments(features)
        if self.params.evaluation == "mean":
            return Output(features, self.output(mean))
        draws = (self.decode(mean, log_variance, noise).log_softmax(-1) for noise in self.noise)
        return Output(features, log_mean_exp(draws))

    def draw(self, samples: int) -> dict[str, Tensor]:
        return {"noise": torch.randn(samples, self.params.latent, generator=self.chance)}

    def step(self, network: Any, batch: Batch) -> Step:
        mean, log_variance = self.moments(network.features(batch.images))
        logits = self.decode(mean, log_variance, self.drawn["noise"])
        kl = self.params.kl_weight * gaussian_kl(mean, log_variance)
        return Step(F.cross_entropy(logits, batch.labels) + kl, logits)

    def moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of z: (N, D) to (N, Z) each."""
        return self.mean(features), F.logsigmoid(self.variance(features))

    def decode(self, mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
        """Return the logits (N, C) of z for standard normal noise (N, Z) or (Z,)."""
        logits: Tensor = self.output(mean + (0.5 * log_variance).exp() * noise)
        return logits


METHODS.register(
    name="vtst_joint",
    title="V-TST's head trained end to end (control)",
    **cited("Jordahn and Olmos, ICML", "jordahn2024decoupling"),
    formula=METHODS["vtst"].formula.rstrip() + ",\n" + r"\quad h_i \text{ trained too}",
    params=VariationalTwoStageParams,
    implementation=JointVariational,
    pairs_by_order=True,
    trains_own_head=False,
)
