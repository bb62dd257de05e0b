"""Retraining of the head without a mask, the control of every head method.

As a control it has no recipe of its own and is trained like the other heads of the data set.
"""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from tune_calib.methods._base import HeadContext, HeadMethod
from tune_calib.models.heads import Activation, HeadShape, apply_stack, init_stack
from tune_calib.spec.methods import METHODS, Params, cited
from tune_calib.spec.slots.head import HeadSlot


class RetrainParams(Params):
    start: Literal["fresh", "continued"] = "fresh"
    """Initial weights.

    - `fresh`: new random weights, as in the methods for which this is the control.
    - `continued`: the weights of the network's own head; with `linear` only.
    """
    shape: HeadShape = "linear"
    """Layers of the head.

    - `linear`: one layer, like the network's own head.
    - `bottleneck`: two layers.
    """
    width: int | None = Field(None, ge=1)
    """Hidden width of the bottleneck; D/4 by default."""
    activation: Activation = "relu"
    """Activation between the layers of the bottleneck.

    - `relu`: max(0, x).
    - `gelu`: x Phi(x), where Phi is the normal distribution function.
    - `none`: the identity, so that the head is linear.
    """

    @model_validator(mode="after")
    def _continued_is_linear(self) -> Self:
        if self.start == "continued" and self.shape != "linear":
            raise ValueError("start=continued needs shape=linear, like the network's own head")
        return self


class Retrain(HeadMethod):
    """Cross entropy on the frozen features."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        sizes = [context.width, context.classes]
        if self.params.shape == "bottleneck":
            sizes.insert(1, self.params.width or max(1, context.width // 4))
        self.parameters = init_stack(sizes, self.seeds, context.device)
        if self.params.start != "fresh":
            # Equal for all seeds: with a shared batch order, continued heads stay equal, and their
            # spread is 0.
            self.parameters["0.weight"].data.copy_(context.weight)
            self.parameters["0.bias"].data.copy_(context.bias)

    def training_logits(self, features: Tensor) -> Tensor:
        return apply_stack(self.parameters, features, [self.params.activation])


METHODS.register(
    name="retrain",
    title="fresh or continued head, no mask (control)",
    **cited("Kang et al., ICLR", "kang2020decoupling"),
    formula=r"""
        L = \frac{1}{N} \sum_i -\log \operatorname{softmax}(g(h_i))_{y_i},
        \quad h_i \text{ frozen}
    """,
    params=RetrainParams,
    implementation=Retrain,
)
