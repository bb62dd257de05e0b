"""SMART (Guo et al., ICML 2026): a temperature that depends on the margin of each sample.

The margin is the difference of the two largest logits, standardised over ``calib``. A network with
two hidden layers maps it to a temperature of at least 0.1. It minimises a soft ECE: each sample
belongs to all bins, by a Gaussian of the distance of its confidence from their centres, and the gap
of a bin has a square root's kink rounded off (a Charbonnier term), so that the loss is never below
0.001. The order of the classes of a sample does not change.

Differences from the authors' program (Misakaaaaaz/ICML2026-SMART): the fit is in float64 instead of
float32, where rounding alone moves the final loss by up to 8 %. As there, the initial weights are
those of seed 1 and the weights kept are those after the step that began at the smallest loss.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import sqrt

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import UNCONVERGED, Fit, FittedAlone, exact
from tune_calib.methods.temperature import AT_BOUND, is_all_right
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS, Params, cited

_SIZES = (1, 16, 16, 1)  # of the layers
_LOWEST = 0.1  # temperature
_BINS, _WIDTH, _ROUNDING = 15, 0.05, 1e-3  # of the soft ECE
_IMPROVEMENT, _PATIENCE = 1e-4, 200  # of the loss, and the steps to wait for one

Layers = list[tuple[Tensor, Tensor]]


class SmartParams(Params):
    lr: float = Field(0.005, gt=0)
    """Learning rate of Adam, whose batch is all of `calib`."""
    epochs: int = Field(2000, ge=1)
    """Most steps of the fit; it stops after 200 without an improvement of more than 1e-4."""


class MarginTemperature(FittedAlone):
    """A temperature for each sample, from its margin."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        margins = margins_of(logits)
        mean, deviation = margins.mean(), margins.std(correction=0).clamp_min(1e-8)
        layers, loss, is_stopped = self._train(logits, labels, (margins - mean) / deviation)
        state = {"mean": mean, "deviation": deviation}
        for place, (weight, bias) in enumerate(layers):
            state |= {f"weight{place}": weight, f"bias{place}": bias}
        flags = set() if is_stopped else {UNCONVERGED}
        if is_all_right(logits, labels):
            flags.add(AT_BOUND)
        return Fit(state, {"soft_ece": loss}, frozenset(flags))

    @torch.enable_grad()
    def _train(self, logits: Tensor, labels: Tensor, margins: Tensor) -> tuple[Layers, float, bool]:
        """Return the layers of the smallest loss, that loss, and whether patience ran out."""
        layers = initial_layers(logits)
        parameters = [parameter.requires_grad_() for layer in layers for parameter in layer]
        optimiser = torch.optim.Adam(parameters, lr=self.params.lr)
        smallest, waited = float("inf"), 0
        best = [parameter.detach().clone() for parameter in parameters]
        for _ in range(self.params.epochs):
            optimiser.zero_grad()
            scaled = logits / temperatures(margins, layers)
            loss = soft_ece(*top_label(scaled.softmax(-1), labels))
            loss.backward()
            optimiser.step()
            waited += 1
            if loss.item() < smallest - _IMPROVEMENT:
                smallest, waited = loss.item(), 0
                best = [parameter.detach().clone() for parameter in parameters]
            if waited == _PATIENCE:
                break
        return list(zip(best[::2], best[1::2], strict=True)), smallest, waited == _PATIENCE

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        margins = (margins_of(logits) - state["mean"]) / state["deviation"]
        layers = []
        for place in range(len(_SIZES) - 1):
            layers.append((state[f"weight{place}"], state[f"bias{place}"]))
        return logits / temperatures(margins, layers)


def margins_of(logits: Tensor) -> Tensor:
    """Return the differences (N,) of the two largest logits of each row (N, C)."""
    largest = logits.topk(2, dim=-1).values
    return largest[..., 0] - largest[..., 1]


def initial_layers(like: Tensor) -> Layers:
    """Return weights (out, in) and biases (out,) as torch initialises linear layers with seed 1."""
    generator = torch.Generator().manual_seed(1)
    layers = []
    for inputs, outputs in pairwise(_SIZES):
        bound = 1 / sqrt(inputs)
        weight, bias = torch.empty(outputs, inputs), torch.empty(outputs)
        for tensor in (weight, bias):
            tensor.uniform_(-bound, bound, generator=generator)
        layers.append((weight.to(like), bias.to(like)))
    return layers


def temperatures(margins: Tensor, layers: Layers) -> Tensor:
    """Return temperatures (N, 1) of at least 0.1 from standardised margins (N,)."""
    *hidden, (weight, bias) = layers
    values = margins.unsqueeze(-1)
    for hidden_weight, hidden_bias in hidden:
        values = (values @ hidden_weight.T + hidden_bias).relu()
    values = values @ weight.T + bias
    # The softplus, which onnxruntime does not have in double precision.
    return values.relu() + (-values.abs()).exp().log1p() + exact(_LOWEST, values)


def soft_ece(
    confidence: Tensor,
    correct: Tensor,
    bins: int = _BINS,
    width: float = _WIDTH,
    rounding: float = _ROUNDING,
) -> Tensor:
    """Return the soft ECE of confidences (N,) and hits (N,), at least ``rounding``."""
    centres = (torch.arange(bins, dtype=confidence.dtype, device=confidence.device) + 0.5) / bins
    shares = (-(confidence.unsqueeze(-1) - centres).square() / (2 * width**2)).exp()
    shares = shares / shares.sum(-1, keepdim=True)
    masses = shares.sum(0)
    gaps = ((confidence - correct) @ shares) / masses
    return masses / masses.sum() @ (gaps.square() + rounding**2).sqrt()


METHODS.register(
    name="smart",
    title="temperature from the margin, by a soft ECE",
    **cited("Guo et al., ICML", "guo2026smart"),
    formula=r"""
        p = \operatorname{softmax}(z / T(u)), \quad T(u) = 0.1 + \operatorname{softplus}(h(u)),
        \quad u = \frac{m - \bar m}{\operatorname{sd}(m)}, \quad m = z_{(1)} - z_{(2)},
        \quad h = \operatorname{argmin}_h \sum_b \frac{M_b}{N}
            \sqrt{\left(\operatorname{conf}_b - \operatorname{acc}_b\right)^2 + 0.001^2}
    """,
    params=SmartParams,
    implementation=MarginTemperature,
    keeps_accuracy=True,
)
