"""Convolutional networks for a CPU or a few minutes on a GPU, from 8x8 grey to 32x32 colour images.

``small_vgg`` is about as fast as ``small_cnn`` but has ten times its weights, so that it fits a few
thousand images perfectly in a dozen epochs: it is the cheapest network that is as over-confident as
those of the papers. ``fast_cnn``, of recipe ``fast``, has six convolutions and needs .80 GFLOP for
training on one 32x32 image.

All networks consist of blocks of 3x3 convolution, BN and ReLU, and have features >= 0. The values
of ``init`` are ``reference`` (torch's defaults) and ``timm`` (Kaiming normal, fan out).
"""

from collections.abc import Sequence

from torch import nn

from tune_calib.models.base import FEATURE_WIDTH, feature_stage, finish
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

CNN_WIDTHS = (32, 64, 128)
VGG_WIDTHS = (32, 64, 128, 256, 512)
FAST_WIDTHS = (64, 256, 256)


def build_cnn(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build three blocks and a 1x1 convolution, D = 512; max pools halve maps of at least 8x8."""
    layers, bounds = _conv_blocks(channels, size, CNN_WIDTHS, pooled_from=8)
    layers += feature_stage(CNN_WIDTHS[-1])
    # Split before the last two modules, which pool and flatten.
    return finish(nn.Sequential(*layers), [*bounds, len(layers) - 2], init), FEATURE_WIDTH


def build_vgg(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build five blocks and a global average, D = 512; max pools halve maps of at least 4x4."""
    layers, bounds = _conv_blocks(channels, size, VGG_WIDTHS, pooled_from=4)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(1)]
    return finish(nn.Sequential(*layers), bounds, init), VGG_WIDTHS[-1]


def build_fast(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build three blocks of two 3x3 convolutions and a global maximum over D = 256 maps.

    After the first convolution of each block, a 2x2 max pool halves the maps, so that the second
    convolution costs a quarter. BN and ReLU follow both.
    """
    layers: list[nn.Module] = []
    bounds: list[int] = []
    for width in FAST_WIDTHS:
        for convolved, pools in ((channels, [nn.MaxPool2d(2, ceil_mode=True)]), (width, [])):
            layers += [nn.Conv2d(convolved, width, 3, padding=1, bias=False), *pools]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        bounds.append(len(layers))
        channels = width
    layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(1)]
    return finish(nn.Sequential(*layers), bounds, init), FAST_WIDTHS[-1]


def _conv_blocks(
    channels: int, size: int, widths: Sequence[int], pooled_from: int
) -> tuple[list[nn.Module], list[int]]:
    """Build blocks with pools between them; return the layers and their number up to each end."""
    layers: list[nn.Module] = []
    bounds: list[int] = []
    for block, width in enumerate(widths):
        if block > 0 and size >= pooled_from:
            layers.append(nn.MaxPool2d(2))
            size //= 2
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        layers.append(nn.ReLU())
        bounds.append(len(layers))
        channels = width
    return layers, bounds


BACKBONES.register(BackboneInfo("small_cnn", "Small CNN", build_cnn))
BACKBONES.register(BackboneInfo("small_vgg", "Small VGG", build_vgg))
BACKBONES.register(BackboneInfo("fast_cnn", "Fast CNN", build_fast))
