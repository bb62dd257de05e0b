"""Parametrised temperature scaling, PTS (Tomani, Cremers and Buettner, ECCV 2022).

A small network maps the largest logits of a sample, in descending order and clipped to [-100, 100],
to its temperature. It minimises the mean squared error of the probabilities of all classes, plus a
penalty of the weights of the hidden layers. The order of the classes of a sample does not change.

Differences from the authors' program: the network starts from the best single temperature, where
theirs starts near a random one, even 0; L-BFGS takes at most 100 steps (fewer with more than two
million logits), and the trial is flagged if the last quarter still lowers the summed error by
0.005, where theirs takes a given number of steps of Adam; and the logits that are divided are not
clipped, which would change the order of those above 100. The sizes of the network are those of the
paper. Samples are sorted before the fit, so that their order changes nothing.
"""

from collections.abc import Mapping

from pydantic import Field
from torch import Tensor

from tune_calib.methods._networks import (
    Layers,
    NetworkMap,
    Objective,
    evaluate_layers,
    initial_layers,
    layers_of,
)
from tune_calib.metrics.binning import at_labels
from tune_calib.spec.methods import METHODS, Params, cited

_CLIP = 100.0  # largest input of the network
_LOWEST, _HIGHEST = 1e-12, 1e12  # temperatures
_START = (0.05, 20.0)  # temperatures


class PtsParams(Params):
    layers: int = Field(2, ge=0, le=5)
    """Hidden layers of the network."""
    nodes: int = Field(5, ge=1, le=100)
    """Units of a hidden layer."""
    top: int = Field(10, ge=1)
    """How many of the largest logits the network reads; at most all classes."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight of the sum of the squared weights of the hidden layers."""


class ParametrisedTemperature(NetworkMap):
    """A temperature for each sample, from its largest logits."""

    def initial(self, temperature: float, logits: Tensor) -> Layers:
        hidden = [self.params.nodes] * self.params.layers
        sizes = [min(self.params.top, logits.shape[-1]), *hidden, 1]
        return initial_layers(sizes, min(max(temperature, _START[0]), _START[1]), logits)

    def objective(self, logits: Tensor, labels: Tensor) -> Objective:
        inputs, classes = self.inputs(logits), logits.shape[-1]

        def scaled_loss(layers: Layers) -> Tensor:
            # Summed over classes, or the gradient would vanish with many of them.
            return classes * pts_loss(logits, labels, inputs, layers, self.params.weight_decay)

        return scaled_loss

    def inputs(self, logits: Tensor) -> Tensor:
        """Return what the network reads, (N, top)."""
        count = min(self.params.top, logits.shape[-1])
        return logits.topk(count, dim=-1).values.clamp(-_CLIP, _CLIP)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return logits / pts_temperatures(self.inputs(logits), layers_of(state))


def pts_temperatures(inputs: Tensor, layers: Layers) -> Tensor:
    """Return temperatures (N, 1) in [1e-12, 1e12] from inputs (N, K)."""
    return evaluate_layers(inputs, layers).abs().clamp(_LOWEST, _HIGHEST)


def pts_loss(
    logits: Tensor, labels: Tensor, inputs: Tensor, layers: Layers, weight_decay: float
) -> Tensor:
    """Return the mean squared error over samples and classes plus the penalty."""
    probs = (logits / pts_temperatures(inputs, layers)).softmax(-1)
    # The squared error of a row is |p|^2 - 2 p_y + 1.
    loss = (probs.square().sum(-1) - 2 * at_labels(probs, labels) + 1).mean() / logits.shape[-1]
    for weight in layers[:-2:2]:
        loss = loss + weight_decay * weight.square().sum()
    return loss


METHODS.register(
    name="pts",
    title="parametrised temperature scaling",
    **cited("Tomani et al., ECCV", "tomani2022parameterized"),
    formula=r"""
        p = \operatorname{softmax}(z / T(z)),
        \quad T(z) = |h(z_{(1)}, \dots, z_{(K)})|,
        \quad h = \operatorname{argmin}_h \frac{1}{N C} \sum_{i \in \mathrm{calib}} \sum_k
            \left(p_{ik} - [y_i = k]\right)^2 + \lambda \sum_l \|W_l\|^2
    """,
    params=PtsParams,
    implementation=ParametrisedTemperature,
    keeps_accuracy=True,
)
