"""Two-stage training (Jordahn and Olmos, arXiv 2405.01196): a fresh MLP on frozen features.

Stage II is stopped early on the validation NLL, a correction of the paper in the authors' README
(docs/pages/methods/index.md#epoch-kept).
"""

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor

from tune_calib.methods._base import HeadContext, HeadMethod
from tune_calib.models.heads import apply_stack, init_stack
from tune_calib.spec.methods import METHODS, Params, cited
from tune_calib.spec.slots.head import HeadSlot


class TwoStageParams(Params):
    latent: int = Field(256, ge=1)
    """Width Z of the last hidden layer; the layer before has width 3Z. The authors' program has a
    default of 10 and uses 256 in its example; their values for each data set are not known."""


class TwoStageTraining(HeadMethod):
    """An MLP with sizes D, 3Z, Z, C and a ReLU after the first layer, but none after z."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        latent = self.params.latent
        sizes = (context.width, 3 * latent, latent, context.classes)
        self.parameters = init_stack(sizes, self.seeds, context.device)

    def training_logits(self, features: Tensor) -> Tensor:
        return apply_stack(self.parameters, features, ["relu", "none"])


METHODS.register(
    name="tst",
    title="two-stage training",
    **cited("Jordahn and Olmos, ICML", "jordahn2024decoupling"),
    formula=r"""
        L = \frac{1}{N} \sum_i -\log \operatorname{softmax}(W_3 (W_2 [W_1 h_i + b_1]_+ + b_2)
            + b_3)_{y_i}, \quad h_i \text{ frozen}
    """,
    params=TwoStageParams,
    implementation=TwoStageTraining,
    recipe="tst",
)
