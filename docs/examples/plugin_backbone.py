"""A perceptron with one hidden layer, for images of any size."""

from torch import nn

from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

WIDTH = 128


def build(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build the extractor, which gives features (N, 128) >= 0, and return it with its width."""
    pixels = channels * size * size
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, WIDTH), nn.ReLU()), WIDTH


# It is no chain of stages, so methods that need one (mit_a, balcal) are refused in one line.
BACKBONES.register(BackboneInfo("perceptron", "Perceptron", build, has_stages=False))
