"""A network: a backbone that gives features and a linear head that gives logits."""

from typing import NamedTuple

from torch import Tensor, nn

from tune_calib.errors import UserError


class Output(NamedTuple):
    """What a network gives.

    Attributes:
        features: (N, D), what the head sees.
        logits: (N, C), unnormalised.
    """

    features: Tensor
    logits: Tensor


class Network(nn.Module):
    """Backbone and linear head.

    Args:
        backbone: (N, channels, size, size) -> (N, width).
        width: number of features D.
        classes: number of classes C.

    Attributes:
        backbone: the feature extractor.
        head: ``nn.Linear(width, classes)``.
        width: number of features D.
    """

    def __init__(self, backbone: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, classes)
        self.width = width

    def forward(self, images: Tensor) -> Output:
        """Give features and logits of normalised images (N, channels, size, size)."""
        features = self.backbone(images)
        return Output(features, self.head(features))

    def stages(self) -> list[nn.Module]:
        """Give parts of the backbone that, one after the other, are the backbone.

        The last one pools the maps of the one before, (N, D, h, w) -> (N, D). The parts share
        their weights and their mode with the backbone.

        Raises:
            UserError: the backbone does not say how it is cut.
        """
        cut = getattr(self.backbone, "cut_into_stages", None)
        if cut is None:
            raise UserError(
                f"this backbone ({type(self.backbone).__name__}) cannot be run stage by stage; "
                "choose e.g. small_cnn, resnet18 or densenet121"
            )
        stages: list[nn.Module] = cut(self.backbone)
        return stages
