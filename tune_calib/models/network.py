"""A network: a backbone that gives features and a linear head that gives logits."""

from typing import NamedTuple

from torch import Tensor, nn


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
