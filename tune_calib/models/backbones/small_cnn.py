"""A small convolutional network for a CPU, from 8x8 grey to 32x32 colour."""

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

WIDTHS = (32, 64, 128)


def build(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build three blocks of 3x3 convolution, BN and ReLU, then a 1x1 convolution to D = 512.

    Between the blocks a 2x2 max pool halves the maps, as long as they are 8x8 or larger. Features
    are >= 0. ``init`` is ``reference``: torch's defaults; or ``timm``: Kaiming normal, fan out.
    """
    layers, bounds = conv_blocks(channels, size, WIDTHS, pooled_from=8)
    extractor = nn.Sequential(*layers, *feature_stage(WIDTHS[-1]))
    # Cut before the last two modules, which pool and flatten.
    declare_stages(extractor, partial(cut_sequential, bounds=(*bounds, len(extractor) - 2)))
    if init == "timm":
        draw_fan_out(extractor)
    return extractor, FEATURE_WIDTH


BACKBONES.register(BackboneInfo("small_cnn", "Small CNN", build))
