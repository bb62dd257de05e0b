"""BalCAL (Ni et al., CVPR 2025, https://arxiv.org/abs/2504.10007): balance two classifiers.

In addition to the linear head, a fixed simplex ETF classifies normalised features, which bounds its
confidence. The logits of both heads are mixed. After each epoch, the share of the linear head is
searched so that the confidence equals ``delta`` times the accuracy. In the formula, E is the
simplex ETF (P has orthonormal columns), a(x) is the output of an adaptor on the maps before
pooling, and e scales each class by its share of the batch, which evaluation leaves out.

Differences from the authors' code (JianiNi/BalCAL): the ETF is a buffer and thus part of the
checkpoint (theirs is redrawn at evaluation). The search always applies the softmax (theirs skips it
when all logits lie in [0, 1]). The adaptor reads the maps that the backbone pools (in a
pre-activation network, theirs reads them before the last BN and ReLU). With ``select:
min_val_nll``, an epoch is selected by the NLL of the mixture, not by the sum of the two cross
entropies.
"""

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.methods._base import Batch, NetworkContext, NetworkMethod, Step
from tune_calib.models.network import Output, draw_fan_out
from tune_calib.spec.methods import METHODS, Params, cited

FIRST_SHARE = 0.8  # the initial share in the authors' program, whatever its constructor receives
TOLERANCE = 1e-4
MOMENTUM = 0.01  # the authors' momentum, on any backbone; their WRN-28-10 uses it in every BN


class BalCalParams(Params):
    delta: float = Field(0.95, gt=0, le=1)
    """Target ratio of confidence to accuracy on the training batches."""


def simplex_etf(orthonormal: Tensor) -> Tensor:
    """Return the simplex ETF (D, C) of orthonormal columns (D, C): cosines of -1 / (C - 1)."""
    classes = orthonormal.shape[1]
    centred = orthonormal - orthonormal.mean(1, keepdim=True)
    return math.sqrt(classes / (classes - 1)) * centred


def draw_etf(width: int, classes: int, seed: int) -> Tensor:
    """Draw a simplex ETF (D, C) from the QR decomposition of uniform numbers."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(width, classes, generator=generator, dtype=torch.float64)
    return simplex_etf(torch.linalg.qr(uniform).Q).float()


def column_scale(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Return the scale (C,) of each class by its share of a batch, given labels (N,) int64.

    It is sqrt((N / U) / n_k), where U is the number of classes in the batch and n_k the number of
    samples of class k, or 1 for an absent class.
    """
    counts = (labels[:, None] == torch.arange(classes, device=labels.device)).sum(0).to(dtype)
    balanced = len(labels) / (counts > 0).sum().to(dtype)
    return torch.where(counts > 0, (balanced / counts.clamp(min=1)).sqrt(), 1.0)


def balcal_loss(linear: Tensor, etf: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """Return the weighted mean of the cross entropies of both logits (N, C), a scalar in nats."""
    return share * F.cross_entropy(linear, labels) + (1 - share) * F.cross_entropy(etf, labels)


def find_share(linear: Tensor, etf: Tensor, labels: Tensor, delta: float) -> float:
    """Bisect for the share of the linear logits at which confidence = delta x accuracy.

    The logits (N, C) of both heads and the labels (N,) are those of an epoch. The result is 1 if
    the linear head alone is not too confident. Otherwise it is the last midpoint that is closer to
    the target than the linear head alone, or 1 if there is none.
    """

    def shortfall(share: float) -> float:
        probs = (share * linear + (1 - share) * etf).softmax(1)
        confidence, predicted = probs.max(1)
        right = (predicted == labels).to(probs.dtype).mean()
        return float(delta * right - confidence.mean())

    alone = shortfall(1.0)
    if alone > 0:
        return 1.0
    low, high, answer = 0.0, 1.0, 1.0
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        short = shortfall(middle)
        # As in the authors' code, a midpoint is compared with the linear head and not with the best
        # so far: the last good midpoint wins, not the nearest.
        if abs(short) < abs(alone):
            answer = middle
        if short > 0:
            low = middle
        else:
            high = middle
    return answer


class Adaptor(nn.Module):
    """Turn the maps (N, D, h, w) of the backbone into those of the ETF, of the same shape and >= 0.

    A residual branch consists of BN, ReLU and a 3x3 convolution to D / 2 maps, and the same back to
    D maps. BN and ReLU follow the addition. The momentum of the BNs and the initialisation are
    those of the authors' network, on any backbone.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        half = max(1, width // 2)
        self.branch = nn.Sequential(
            nn.BatchNorm2d(width, momentum=MOMENTUM),
            nn.ReLU(),
            nn.Conv2d(width, half, 3, padding=1, bias=False),
            nn.BatchNorm2d(half, momentum=MOMENTUM),
            nn.ReLU(),
            nn.Conv2d(half, width, 3, padding=1, bias=False),
        )
        self.norm = nn.BatchNorm2d(width, momentum=MOMENTUM)
        draw_fan_out(self.branch)

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.norm(maps + self.branch(maps)))


class BalCal(NetworkMethod):
    """A linear head and an ETF head that both train the backbone."""

    share: Tensor
    etf: Tensor
    adaptor: Adaptor

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        if context.width < context.classes:
            raise UserError(
                f"balcal needs as many features as classes, got {context.width} features "
                f"for {context.classes} classes; choose a wider backbone"
            )
        # A scalar, so that its float64 does not promote the logits in products.
        self.register_buffer("share", torch.tensor(FIRST_SHARE, dtype=torch.float64))
        seed = child_seed(context.seed, "etf")
        self.register_buffer("etf", draw_etf(context.width, context.classes, seed))

    def adapt(self, network: Any) -> None:
        # Called before anything is drawn, since it raises for a backbone without stages.
        network.stages()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(child_seed(self.context.seed, "adaptor"))
            # timm's models state how many maps they pool; ours pool each map to one feature.
            maps = getattr(network.backbone, "num_features", self.context.width)
            self.adaptor = Adaptor(maps)
        self.adaptor.to(memory_format=torch.channels_last)

    def heads(self, network: Any, images: Tensor) -> tuple[Output, Tensor]:
        """Return the network's logits, and the unit features (N, D) that the ETF receives."""
        *stages, pool = network.stages()
        maps = images
        for stage in stages:
            maps = stage(maps)
        features = pool(maps)
        return Output(features, network.head(features)), F.normalize(pool(self.adaptor(maps)))

    def step(self, network: Any, batch: Batch) -> Step:
        labels = batch.labels
        output, unit = self.heads(network, batch.images)
        linear = output.logits
        scale = column_scale(labels, self.context.classes, unit.dtype)
        etf = unit @ (self.etf * scale)
        # As in the authors' code, these logits include the scale of the batch, although the mixture
        # is evaluated without it.
        self.record = {"linear": linear.detach(), "etf": etf.detach(), "labels": labels}
        loss = balcal_loss(linear, etf, labels, self.share)
        return Step(loss, self.share * linear + (1 - self.share) * etf)

    def end_epoch(self, epoch: int, feedback: Any) -> dict[str, float]:
        used = float(self.share)
        records = self.all_records()
        linear, etf = records["linear"].double(), records["etf"].double()
        self.share.fill_(find_share(linear, etf, records["labels"], self.params.delta))
        return {"balcal/share": used}

    def forward(self, network: Any, images: Tensor) -> Output:
        output, unit = self.heads(network, images)
        return Output(output.features, self.mixed(output.logits, unit))

    def mixed(self, linear: Tensor, unit: Tensor) -> Tensor:
        """Return the logits (N, C) at evaluation from the linear logits and the unit features."""
        return self.share * linear + (1 - self.share) * (unit @ self.etf)


METHODS.register(
    name="balcal",
    title="balanced linear and simplex ETF classifiers",
    **cited("Ni et al., CVPR", "ni2025balcal"),
    formula=r"""
        L = \lambda \frac{1}{N} \sum_i -\log \operatorname{softmax}(W h_i + b)_{y_i}
        + (1 - \lambda) \frac{1}{N} \sum_i
            -\log \operatorname{softmax}((E \operatorname{diag}(e))^T f_i)_{y_i},
        \quad E = \sqrt{\tfrac{C}{C - 1}} \, P \big( I - \tfrac{1}{C} 1 1^T \big),
        \quad f_i = \tfrac{a(x_i)}{\| a(x_i) \|},
        \quad \lambda \text{ after each epoch so that } \mathrm{conf} = \delta \, \mathrm{acc}
    """,
    params=BalCalParams,
    implementation=BalCal,
    needs=frozenset({"stages"}),
    recipe="tst",
)
