"""The networks of the calibration papers for CIFAR and Tiny-ImageNet, built from timm's classes.

Definitions and parameter counts follow the code of Mukhoti et al. (NeurIPS 2020,
https://github.com/torrvision/focal_calibration), which MbLS, AdaFocal and FeDLaS share. WRN-28-10
follows TST and BalCAL. The linear head is initialised like that of every other network.
"""

from functools import partial
from typing import Any

from torch import nn

from tune_calib.models.backbones.timm_cifar import (
    build,
    densenet_stages,
    resnet_stages,
    use_cifar_stem,
)
from tune_calib.models.base import declare_stages, draw_fan_out, reset
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init


def resnet(channels: int, size: int, init: Init, *, name: str) -> tuple[nn.Module, int]:
    """Build ResNet-50 or ResNet-101 with features >= 0.

    For images of 64 pixels (Tiny-ImageNet), the last maps are pooled to 2x2 cells, D = 8192, and
    convolutions are Kaiming normal, fan out, in both initialisations. Otherwise D = 2048.
    """
    model: Any
    model, width = build(channels, size, init, name=name)
    if size != 64:
        return model, width
    # The usual pooling to one cell would be a different network: the papers' has 8192 features and
    # a head of 1.6 M weights.
    model.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(1))
    draw_fan_out(model)
    return model, 4 * width


def resnet110(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build "ResNet-110": bottlenecks [3, 4, 26, 3], 45.9 M parameters, D = 2048, features >= 0.

    With ``init`` = ``reference``, convolutions have torch's defaults, and every BN starts at 1.
    With ``timm``, convolutions are Kaiming normal, fan out, and the last BN of every branch starts
    at 0.
    """
    from timm.models.resnet import Bottleneck, ResNet

    # Built by class, since timm has no model of that name. timm's networks start the last BN of a
    # branch at 0, those of the papers do not.
    block: Any = Bottleneck  # timm's annotations expect an instance, not a class
    model = ResNet(
        block, (3, 4, 26, 3), num_classes=0, in_chans=channels, zero_init_last=init == "timm"
    )
    use_cifar_stem(model, channels)
    declare_stages(model, resnet_stages)
    if init == "reference":
        reset(model, nn.Conv2d)
    return model, int(model.num_features)


def wrn26_10(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build "WRN-26-10": three groups of four basic blocks, 36.5 M parameters, D = 640.

    Features are >= 0. Convolutions are Kaiming normal, fan out, in both initialisations. With
    ``timm``, the last BN of every branch starts at 0.
    """
    from timm.models.resnet import BasicBlock, ResNet

    block: Any = BasicBlock
    is_zero = init == "timm"
    model: Any = ResNet(
        block, (4, 4, 4), 0, channels, channels=(160, 320, 640), zero_init_last=is_zero
    )
    # timm's stem has 64 channels, but this one has 16, so that the first block is rebuilt too.
    model.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
    model.bn1 = nn.BatchNorm2d(16)
    model.maxpool = nn.Identity()
    # timm's forward method needs a fourth stage.
    model.layer4 = nn.Identity()
    first = model.layer1[0]
    first.conv1 = nn.Conv2d(16, 160, 3, 1, 1, bias=False)
    first.downsample = nn.Sequential(nn.Conv2d(16, 160, 1, bias=False), nn.BatchNorm2d(160))
    declare_stages(model, resnet_stages)
    draw_fan_out(model)
    return model, int(model.num_features)


def wrn28_10(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build "WRN-28-10" of TST and BalCAL: pre-activation, 36.5 M parameters, D = 640.

    Features are >= 0. Batch normalisations have momentum 0.01. Convolutions of stride 2 are padded
    on the right and at the bottom only. Convolutions are Kaiming normal, fan out, in both
    initialisations. With ``timm``, the last convolution of every branch starts at 0.
    """
    from timm.layers.create_conv2d import create_conv2d
    from timm.layers.norm_act import BatchNormAct2d
    from timm.models.resnetv2 import ResNetV2

    options: Any = {
        # By default, timm's class uses GroupNorm and standardised convolutions. Padding "same" pads
        # a stride of 2 on one side, as the authors' program does; padding both sides would change
        # the logits.
        "norm_layer": partial(BatchNormAct2d, momentum=0.01),
        "conv_layer": partial(create_conv2d, padding="same"),
    }
    model: Any = ResNetV2(
        [4, 4, 4],
        channels=(160, 320, 640),
        num_classes=0,
        in_chans=channels,
        stem_chs=16,
        preact=True,
        basic=True,
        bottle_ratio=1.0,
        zero_init_last=init == "timm",
        **options,
    )
    model.stem = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
    draw_fan_out(model.stem)
    declare_stages(model, preact_stages)
    return model, int(model.num_features)


def preact_stages(model: Any) -> list[nn.Module]:
    """Split a ResNetV2: stem, groups of blocks (the last with the final BN and ReLU), pool."""
    *groups, last = model.stages
    return [model.stem, *groups, nn.Sequential(last, model.norm), model.head]


def densenet121(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build DenseNet-121 with the CIFAR stem: 7.0 M parameters, D = 1024, features >= 0.

    Convolutions have torch's defaults (``reference``) or are Kaiming normal (``timm``).
    """
    from timm.models.densenet import DenseNet

    model: Any = DenseNet(
        growth_rate=32, block_config=(6, 12, 24, 16), num_classes=0, in_chans=channels
    )
    # For images of 32x32: timm's stem divides height and width by four before the first block.
    model.features.conv0 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    model.features.norm0 = nn.Identity()
    model.features.pool0 = nn.Identity()
    declare_stages(model, densenet_stages)
    if init == "reference":
        reset(model, nn.Conv2d)
    else:
        nn.init.kaiming_normal_(model.features.conv0.weight)
    return model, int(model.num_features)


for _name, _title, _build in (
    ("resnet50", "ResNet-50", partial(resnet, name="resnet50")),
    ("resnet101", "ResNet-101", partial(resnet, name="resnet101")),
    ("resnet110", "ResNet-110 (bottleneck, 45.9 M)", resnet110),
    ("wrn26_10", "WRN-26-10", wrn26_10),
    ("wrn28_10", "WRN-28-10 (TST, BalCAL)", wrn28_10),
    ("densenet121", "DenseNet-121 (CIFAR stem)", densenet121),
):
    BACKBONES.register(BackboneInfo(_name, _title, _build))
