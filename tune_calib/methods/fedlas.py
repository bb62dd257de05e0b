"""FeDLaS (ECCV 2026): smoothing that depends on the feature norm of a sample.

The L1 norm of a sample's features, normalised by running moments, indicates the confidence of the
network. The sign of a small gate on the logits decides whether large norms get more smoothing (+1)
or less (-1). ``fedlas_ls`` uses the result to smooth labels, and ``fedlas_mbls`` to weight the
margin penalty of MbLS. Neither indicator nor gate passes a gradient to the network. The gate is
trained to minimise the training loss. In the formula, s is the gate, and mu and nu are the running
mean and standard deviation of the indicator.

As in the authors' code (nadarasarbahavan/FEDLAS), the margin penalty is a mean over classes, an
undecided gate gives 0 and thus smoothing ``alpha``, a new batch enters the moments with weight
``theta``, and a batch is normalised by moments that already contain it. Differences: gate and
moments are part of the checkpoint, and a batch of one sample leaves the moments unchanged (its
standard deviation is NaN, and the moments in the authors' code stay NaN).

For ablations, the gate can be fixed, random or an oracle, and other indicators can be selected.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.determinism import child_seed
from tune_calib.methods._base import NetworkContext, NetworkMethod
from tune_calib.methods._functional import label_log_probs, margin_excess
from tune_calib.spec.methods import METHODS, Params, as_on_tiny, cited

# The authors' initial moments. A new batch has weight theta, so they are soon forgotten.
FIRST_MEAN, FIRST_DEVIATION = 20.0, 100.0
SHIFT = 1e-3  # added to the standard deviation by which the indicator is divided

_INDICATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "norm_l1": lambda _, features: features.abs().sum(1),
    "norm_l2": lambda _, features: features.square().sum(1).sqrt(),
    "norm_linf": lambda _, features: features.abs().amax(1),
    "max_prob": lambda logits, _: logits.softmax(1).amax(1),
    "max_logit": lambda logits, _: logits.amax(1),
    "constant": lambda logits, _: torch.ones_like(logits[:, 0]),
}


class FedlasParams(Params):
    alpha: float = Field(0.05, ge=0, le=0.5)
    """Mean amount of smoothing; the amount of a sample lies between 0 and 2 `alpha`."""
    beta: float = Field(4.0, ge=0)
    """Slope of the amount as a function of the indicator; 0 gives constant smoothing by `alpha`."""
    theta: float = Field(0.95, ge=0, le=1)
    """Weight of a new batch in the running moments."""
    gate: Literal["learned", "positive", "negative", "random", "oracle"] = "learned"
    """Gate that decides whether a large indicator means more or less smoothing.

    - `learned`: a small network on the logits, the published method. Only the training loss
      supervises it.
    - `positive`: large indicators always get more smoothing.
    - `negative`: large indicators always get less smoothing.
    - `random`: a fair coin for each sample and step.
    - `oracle`: +1 for wrong and -1 for correct predictions, so that confident errors get the most
      smoothing and confident correct predictions the least. It uses the labels and is an upper
      bound.
    """
    indicator: Literal[
        "norm_l1", "norm_l2", "norm_linf", "max_prob", "max_logit", "constant", "random"
    ] = "norm_l1"
    """Indicator of the network's confidence in a sample.

    - `norm_l1`: the L1 norm of the features, the published method.
    - `norm_l2`: the L2 norm of the features.
    - `norm_linf`: the largest absolute feature.
    - `max_prob`: the largest probability.
    - `max_logit`: the largest logit.
    - `constant`: 1, so that only the gate matters.
    - `random`: a standard normal number for each sample and step.
    """
    normalise: bool = True
    """Subtract the running mean from the indicator and divide it by the running standard deviation.
    `constant` and `random` are never normalised."""


class FedlasMarginParams(FedlasParams):
    """Hyper-parameters of ``fedlas_mbls``, where alpha weights the penalty, and a margin."""

    alpha: float = Field(0.1, ge=0, le=0.5)
    """Mean weight of the penalty; the weight of a sample lies between 0 and 2 `alpha`."""
    beta: float = Field(0.5, ge=0)
    """Slope of the weight as a function of the indicator; 0 gives the constant weight `alpha`."""
    margin: float = Field(6.0, ge=0)
    """Distance from the largest logit up to which a logit is not penalised."""


class Gate(nn.Module):
    """Sign of a two-layer network on the logits, with a straight-through gradient."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fc_in = nn.Linear(classes, classes // 2)
        self.fc_out = nn.Linear(classes // 2, 2)

    def forward(self, logits: Tensor) -> Tensor:
        votes: Tensor = self.fc_out(F.leaky_relu(self.fc_in(logits), 0.01)).softmax(1)
        lead = votes[:, 1] - votes[:, 0]
        return lead.detach().sign() + (lead - lead.detach())


class FedlasLabelSmoothing(NetworkMethod):
    """Mean of ``(1 - a_i) * -log p[y] + a_i * mean_k(-log p[k])``, with a_i from ``amounts``."""

    gate: Gate | None
    mean: Tensor
    deviation: Tensor

    def __init__(self, params: Any, context: NetworkContext) -> None:
        super().__init__(params, context)
        self.gate = None
        if params.gate == "learned":
            # With its own seed, and with the global generator restored afterwards, so that the
            # initial weights of the gate do not depend on anything that ran before.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(child_seed(context.seed, "gate"))
                self.gate = Gate(context.classes)
        self.register_buffer("mean", torch.tensor(FIRST_MEAN))
        self.register_buffer("deviation", torch.tensor(FIRST_DEVIATION))
        self.epoch = 0

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        super().begin_epoch(epoch, generator)
        self.epoch = epoch

    def draw(self, samples: int, chance: torch.Generator | None = None) -> dict[str, Tensor]:
        chance = chance or self.chance
        draws = {}
        if self.params.indicator == "random":
            draws["indicator"] = torch.randn(samples, generator=chance)
        if self.params.gate == "random":
            draws["coins"] = torch.randint(2, (samples,), generator=chance)
        return draws

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        # Indicator, then moments: a batch is normalised by moments that contain it.
        values = self.values(logits.detach(), features.detach(), self.drawn)
        if self.training and len(values) > 1:
            self.mean.lerp_(values.mean().to(self.mean), self.params.theta)
            # The unbiased estimate, torch's default, as in the authors' code.
            self.deviation.lerp_(values.std().to(self.deviation), self.params.theta)
        signs = self.signs(logits.detach(), labels, self.drawn)
        indicator = self.normalised(values)
        record = {"sample": indices, "gate": signs.detach(), "indicator": indicator}
        self.record = {**record, **_judged(logits.detach(), labels)}
        amounts = self.amounts(signs, indicator).to(logits.dtype)
        plain = -label_log_probs(logits, labels)
        return ((1 - amounts) * plain + amounts * self.regulariser(logits)).mean()

    def regulariser(self, logits: Tensor) -> Tensor:
        """Return the cross entropy of each sample to the uniform distribution, (N,)."""
        return -logits.log_softmax(1).mean(1)

    def amounts(self, signs: Tensor, indicator: Tensor) -> Tensor:
        """Return the amount of smoothing of each sample, (N,) in (0, 2 alpha)."""
        amounts: Tensor = 2 * self.params.alpha * (self.params.beta * signs * indicator).sigmoid()
        return amounts

    def values(self, logits: Tensor, features: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Return the indicator before normalisation, (N,)."""
        if self.params.indicator == "random":
            return draws["indicator"].to(logits)
        return _INDICATORS[self.params.indicator](logits, features)

    def normalised(self, values: Tensor) -> Tensor:
        """Return the indicator as used in the loss, (N,)."""
        if not self.params.normalise or self.params.indicator in ("constant", "random"):
            return values
        return (values - self.mean) / (self.deviation + SHIFT)

    def signs(self, logits: Tensor, labels: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Return the signs of the gate, (N,): 1, -1, or 0 where a learned gate is undecided."""
        if self.gate is not None:
            state: Tensor = self.gate(logits)
            return state
        ones = torch.ones_like(logits[:, 0])
        match self.params.gate:
            case "positive":
                return ones
            case "negative":
                return -ones
            case "oracle":
                return torch.where(logits.argmax(1) == labels, -ones, ones)
            case _:
                return torch.where(draws["coins"].to(labels.device) == 1, ones, -ones)

    def samples_seen(self) -> dict[str, Tensor]:
        return self.all_records()

    @torch.no_grad()
    def sample_record(self, logits: Tensor, labels: Tensor, features: Tensor) -> dict[str, Tensor]:
        # Random values are drawn again, identically in every call of an epoch.
        seed = child_seed(self.context.seed, "record", self.epoch)
        draws = self.draw(len(logits), torch.Generator().manual_seed(seed))
        indicator = self.normalised(self.values(logits, features, draws))
        signs = self.signs(logits, labels, draws)
        amounts = self.amounts(signs, indicator)
        record = {"gate": signs, "indicator": indicator, "amount": amounts}
        return {**record, **_judged(logits, labels)}


def _judged(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"confidence": logits.softmax(1).amax(1), "correct": logits.argmax(1) == labels}


class FedlasMargin(FedlasLabelSmoothing):
    """Mean of ``(1 - a_i) * -log p[y] + a_i * mean_k relu(max z - z[k] - margin)``."""

    def regulariser(self, logits: Tensor) -> Tensor:
        return margin_excess(logits, self.params.margin)


_register = partial(
    METHODS.register,
    **cited("FeDLaS, ECCV", "bahavan2026fedlas", url="https://github.com/nadarasarbahavan/FEDLAS"),
    recipe="fedlas",
)
_FORMULA = r"""
    L = \frac{1}{N} \sum_i \Big[ (1 - a_i) (-\log p_{i,y_i})
        + a_i \frac{1}{C} \sum_k TERM \Big],
    \quad a_i = 2 \alpha \, \sigma \Big( \beta \, s_i
        \frac{\| h_i \|_1 - \mu}{\nu + 10^{-3}} \Big), \quad s_i \in \{-1, 0, 1\}
"""
_register(
    name="fedlas_ls",
    title="FeDLaS with label smoothing",
    formula=_FORMULA.replace("TERM", r"-\log p_{i,k}"),
    params=FedlasParams,
    implementation=FedlasLabelSmoothing,
    dataset_defaults={"cifar100": {"alpha": 0.1, "theta": 0.5}, **as_on_tiny(theta=0.5)},
)
_register(
    name="fedlas_mbls",
    title="FeDLaS with margin-based label smoothing",
    formula=_FORMULA.replace("TERM", r"[\max_l z_{i,l} - z_{i,k} - m]_+"),
    params=FedlasMarginParams,
    implementation=FedlasMargin,
    dataset_defaults={
        "cifar100": {"beta": 1.0, "theta": 0.5},
        **as_on_tiny(alpha=0.05, margin=10.0, theta=0.5),
    },
)
