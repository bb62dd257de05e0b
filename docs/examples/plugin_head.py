"""A cosine head (Gidaris and Komodakis, CVPR 2018), which ignores the norm of a feature."""

from pydantic import Field
from torch import Tensor, bmm
from torch.nn.functional import normalize

from tune_calib.methods import HeadContext, HeadMethod
from tune_calib.models.heads import init_stack
from tune_calib.spec.methods import METHODS, MethodInfo, Params
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.space import SPACES, Space, log_uniform


class CosineParams(Params):
    scale: float = Field(10.0, gt=0)
    """Factor of the cosines, and therefore the largest possible logit."""


class CosineHead(HeadMethod):
    """K heads; each tensor has a leading axis K, and no operation mixes its entries."""

    def __init__(self, heads: list[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        sizes, seeds = (context.width, context.classes), [head.seed for head in heads]
        self.parameters = {"weight": init_stack(sizes, seeds, context.device)["0.weight"]}
        self.scale = self.per_head("scale")[:, None, None]

    def training_logits(self, features: Tensor) -> Tensor:
        weight = normalize(self.parameters["weight"], dim=-1)
        features = normalize(features, dim=-1).expand(len(weight), *features.shape[-2:])
        return self.scale * bmm(features, weight.mT)


METHODS.register(
    MethodInfo(
        name="cosine", kind="head", title="cosine head", paper="Gidaris and Komodakis, CVPR",
        year=2018, url="https://arxiv.org/abs/1804.09458", params=CosineParams,
        implementation=CosineHead, per_head=frozenset({"scale"}),
    )
)  # fmt: skip
SPACES.register(Space("cosine", {"head.scale": log_uniform(1.0, 100.0)}))
