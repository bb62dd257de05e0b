"""Small convolutional networks for a CPU, from 8x8 grey to 32x32 colour.

``small_vgg`` is about as fast as ``small_cnn`` and has ten times its weights, so that it fits a few
thousand images wholly in a dozen epochs: the cheapest network in the papers' regime.

Both have blocks of 3x3 convolution, BN and ReLU; between the blocks a 2x2 max pool halves the maps,
as long as they are large enough. Features are >= 0, D = 512. ``init`` is ``reference``: torch's
defaults; or ``timm``: Kaiming normal, fan out.
"""

from functools import partial

from torch import nn

from tune_calib.models.base import (
    FEATURE_WIDTH,
    conv_blocks,
    cut_sequential,
    declare_stages,
    draw_fan_out,
    feature_stage,
)
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

CNN_WIDTHS = (32, 64, 128)
VGG_WIDTHS = (32, 64, 128, 256, 512)


def build_cnn(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build three blocks, then a 1x1 convolution; pools halve maps of 8x8 or more."""
    layers, bounds = conv_blocks(channels, size, CNN_WIDTHS, pooled_from=8)
    extractor = nn.Sequential(*layers, *feature_stage(CNN_WIDTHS[-1]))
    # Cut before the last two modules, which pool and flatten.
    return _finished(extractor, (*bounds, len(extractor) - 2), init), FEATURE_WIDTH


def build_vgg(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build five blocks, then the global average; pools halve maps of 4x4 or more."""
    layers, bounds = conv_blocks(channels, size, VGG_WIDTHS, pooled_from=4)
    extractor = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
    return _finished(extractor, tuple(bounds), init), VGG_WIDTHS[-1]


def _finished(extractor: nn.Sequential, bounds: tuple[int, ...], init: Init) -> nn.Module:
    declare_stages(extractor, partial(cut_sequential, bounds=bounds))
    if init == "timm":
        draw_fan_out(extractor)
    return extractor


BACKBONES.register(BackboneInfo("small_cnn", "Small CNN", build_cnn))
BACKBONES.register(BackboneInfo("small_vgg", "Small VGG", build_vgg))
