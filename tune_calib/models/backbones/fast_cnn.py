"""The backbone of recipe ``fast``: six convolutions, .80 GFLOP for training on one 32x32 image."""

from functools import partial

from torch import nn

from tune_calib.models.base import cut_sequential, declare_stages, draw_fan_out
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

WIDTHS = (64, 256, 256)


def build(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build three blocks of two 3x3 convolutions, then the global maximum of D = 256 maps.

    Behind the first convolution of each block a 2x2 max pool halves the maps, so that the second
    one costs a quarter; BN and ReLU follow both. Features are >= 0. ``init`` is ``reference``:
    torch's defaults; or ``timm``: Kaiming normal, fan out.
    """
    del size
    layers: list[nn.Module] = []
    bounds: list[int] = []
    for width in WIDTHS:
        for convolved, pools in ((channels, [nn.MaxPool2d(2, ceil_mode=True)]), (width, [])):
            layers += [nn.Conv2d(convolved, width, 3, padding=1, bias=False), *pools]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        bounds.append(len(layers))
        channels = width
    extractor = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(1))
    declare_stages(extractor, partial(cut_sequential, bounds=bounds))
    if init == "timm":
        draw_fan_out(extractor)
    return extractor, WIDTHS[-1]


BACKBONES.register(BackboneInfo("fast_cnn", "Fast CNN", build))
