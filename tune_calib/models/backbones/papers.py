"""The CIFAR networks of the calibration papers that have no timm name, built from timm's classes.

Definitions and parameter counts are those of the code of Mukhoti et al. (NeurIPS 2020,
https://github.com/torrvision/focal_calibration), which MbLS, AdaFocal and FeDLaS share. ResNet-50
and ResNet-101 of these papers are the timm names ``resnet50`` and ``resnet101``.
"""

from typing import Any

from torch import nn

from tune_calib.models.backbones.timm_cifar import (
    densenet_stages,
    resnet_stages,
    use_cifar_stem,
)
from tune_calib.models.base import (
    BackboneInfo,
    Init,
    declare_stages,
    draw_fan_out,
    reset_convolutions,
)
from tune_calib.registry import BACKBONES


def resnet110(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build "ResNet-110": bottlenecks [3, 4, 26, 3], 45.9 M parameters, D = 2048, features >= 0.

    Args:
        channels: of the images.
        size: of the images; 32 in the papers.
        init: ``reference``: convolutions by torch's defaults, every BN at 1; ``timm``: Kaiming
            normal, fan out, and the last BN of every branch at 0.
    """
    from timm.models.resnet import Bottleneck

    del size
    model = _timm_resnet(
        Bottleneck,
        (3, 4, 26, 3),
        num_classes=0,
        in_chans=channels,
        zero_init_last=init == "timm",
    )
    use_cifar_stem(model, channels)
    declare_stages(model, resnet_stages)
    if init == "reference":
        reset_convolutions(model)
    return model, int(model.num_features)


def wrn26_10(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build "WRN-26-10": three groups of four basic blocks, 36.5 M parameters, D = 640.

    Features are >= 0.

    Args:
        channels: of the images.
        size: of the images; 32 in the papers.
        init: convolutions are Kaiming normal, fan out, in both; with ``timm`` the last BN of
            every branch starts at 0.
    """
    from timm.models.resnet import BasicBlock

    del size
    model = _timm_resnet(
        BasicBlock,
        (4, 4, 4),
        num_classes=0,
        in_chans=channels,
        channels=(160, 320, 640),
        zero_init_last=init == "timm",
    )
    model.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
    model.bn1 = nn.BatchNorm2d(16)
    model.maxpool = nn.Identity()
    # timm's forward asks for a fourth stage.
    model.layer4 = nn.Identity()
    first = model.layer1[0]
    first.conv1 = nn.Conv2d(16, 160, 3, 1, 1, bias=False)
    first.downsample = nn.Sequential(nn.Conv2d(16, 160, 1, bias=False), nn.BatchNorm2d(160))
    declare_stages(model, resnet_stages)
    draw_fan_out(model)
    return model, int(model.num_features)


def densenet121(channels: int, size: int, init: Init) -> tuple[nn.Module, int]:
    """Build DenseNet-121 with the CIFAR stem: 7.0 M parameters, D = 1024, features >= 0.

    Args:
        channels: of the images.
        size: of the images; 32 in the papers.
        init: ``reference``: convolutions by torch's defaults; ``timm``: Kaiming normal.
    """
    from timm.models.densenet import DenseNet

    del size
    model: Any = DenseNet(
        growth_rate=32, block_config=(6, 12, 24, 16), num_classes=0, in_chans=channels
    )
    model.features.conv0 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    model.features.norm0 = nn.Identity()
    model.features.pool0 = nn.Identity()
    declare_stages(model, densenet_stages)
    if init == "reference":
        reset_convolutions(model)
    else:
        nn.init.kaiming_normal_(model.features.conv0.weight)
    return model, int(model.num_features)


def _timm_resnet(*args: Any, **kwargs: Any) -> Any:
    # Untyped on purpose: timm's annotations take the class of a block for an instance.
    from timm.models.resnet import ResNet

    return ResNet(*args, **kwargs)


for _name, _title, _build in (
    ("resnet110", "ResNet-110 (bottleneck, 45.9 M)", resnet110),
    ("wrn26_10", "WRN-26-10", wrn26_10),
    ("densenet121", "DenseNet-121 (CIFAR stem)", densenet121),
):
    BACKBONES.register(_name, BackboneInfo(_name, _title, _build))
