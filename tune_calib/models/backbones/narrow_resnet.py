"""The narrow CIFAR ResNets of He et al. (CVPR 2016): 6n + 2 layers, 16, 32 and 64 channels.

Not to be confused with ``resnet110`` (``papers.py``): the "ResNet-110" of the calibration papers
is a bottleneck network of 45.9 M parameters, not the 1.7 M one of this family.

Differences from He et al.: the shortcut that changes the shape is a projection (option B,
1x1 convolution and BN, as in the code of MDCA and CRL), and a 1x1 convolution with BN and ReLU
widens the 64 channels to D = 512 before the global average, so that the heads that mask and
re-weight features have as many as with a wide network.
"""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.models.base import (
    FEATURE_WIDTH,
    cut_sequential,
    declare_stages,
    draw_fan_out,
    feature_stage,
)
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

STAGES = ((16, 1), (32, 2), (64, 2))

DEPTHS = (8, 20, 32, 56)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BN beside a shortcut, (N, c_in, h, w) -> (N, c_out, h', w').

    The first convolution has the stride, 1 or 2: h' = ceil(h / stride).
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add branch and shortcut, then ReLU."""
        branch = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(branch)) + self.shortcut(x))


def build(channels: int, size: int, init: Init, *, depth: int) -> tuple[nn.Module, int]:
    """Build a network of the family, with features (N, 512) >= 0, and return 512 with it.

    Args:
        channels: of the images.
        size: height and width of the images; any.
        init: ``reference``: torch's defaults; ``timm``: Kaiming normal, fan out, and the last
            BN of every branch starts at zero.
        depth: 6n + 2, counted as He et al. do (without the 1x1 convolutions).
    """
    del size
    width = STAGES[0][0]
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU()]
    blocks: list[BasicBlock] = []
    bounds: list[int] = []
    for stage_width, stride in STAGES:
        bounds.append(len(layers) + len(blocks))
        for index in range((depth - 2) // 6):
            blocks.append(BasicBlock(width, stage_width, stride if index == 0 else 1))
            width = stage_width
    bounds.append(len(layers) + len(blocks))
    extractor = nn.Sequential(*layers, *blocks, *feature_stage(width))
    # The last stage is the pool alone, of two modules; the 1x1 convolution before it belongs to the
    # maps.
    declare_stages(extractor, partial(cut_sequential, bounds=(*bounds, len(extractor) - 2)))
    if init == "timm":
        draw_fan_out(extractor)
        for block in blocks:
            nn.init.zeros_(block.bn2.weight)
    return extractor, FEATURE_WIDTH


for _depth in DEPTHS:
    BACKBONES.register(
        BackboneInfo(
            f"resnet{_depth}", f"ResNet-{_depth} (narrow, CIFAR)", partial(build, depth=_depth)
        ),
    )
