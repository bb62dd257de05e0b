"""The head of two-stage training, trained end to end, as the control for TST's claim.

The network's linear head is not used. Instead, the MLP that TST (Jordahn and Olmos, arXiv
2405.01196) puts on the frozen body is trained together with the body. As a control it has no recipe
of its own and is trained like the other networks of the data set.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.determinism import child_seed
from tune_calib.methods._base import Batch, NetworkContext, NetworkMethod, Step
from tune_calib.methods.tst import TwoStageParams
from tune_calib.models.network import Output
from tune_calib.spec.methods import METHODS, cited


class JointTwoStage(NetworkMethod):
    """Cross entropy of an MLP D, 3Z, Z, C with a ReLU after the first layer, but none after z."""

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        latent = params.latent
        sizes = (context.width, 3 * latent, latent, context.classes)
        first, *others = linear_layers(sizes, context.seed, "tst head")
        self.head = nn.Sequential(first, nn.ReLU(), *others)

    def forward(self, network: Any, images: Tensor) -> Output:
        # This bypasses the network's own head, which gets no gradient and keeps its initial values.
        features = network.features(images)
        return Output(features, self.head(features))

    def step(self, network: Any, batch: Batch) -> Step:
        logits = self(network, batch.images).logits
        return Step(F.cross_entropy(logits, batch.labels), logits)


def linear_layers(sizes: tuple[int, ...], seed: int, purpose: str) -> list[nn.Linear]:
    """Build layers of these widths, initialised from (seed, purpose) only."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(child_seed(seed, purpose))
        return [nn.Linear(*pair) for pair in pairwise(sizes)]


METHODS.register(
    name="tst_joint",
    title="TST's head trained end to end (control)",
    **cited("Jordahn and Olmos, ICML", "jordahn2024decoupling"),
    formula=r"""
        L = \frac{1}{N} \sum_i -\log \operatorname{softmax}(W_3 (W_2 [W_1 h_i + b_1]_+
            + b_2) + b_3)_{y_i}, \quad h_i \text{ trained too}
    """,
    params=TwoStageParams,
    implementation=JointTwoStage,
    trains_own_head=False,
)
