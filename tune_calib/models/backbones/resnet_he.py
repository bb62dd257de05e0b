"""The CIFAR ResNets of He et al. (CVPR 2016, section 4.2) to the letter, of which weights exist.

Three stages of n = (depth - 2) / 6 basic blocks with 16, 32 and 64 channels. Where a stage begins,
the shortcut is option A: every second pixel, then channels of zeros on both sides, no weights. The
features are the global average of the last maps, D = 64. Names of tensors are those of
akamaster/pytorch_resnet_cifar10 (Yerlan Idelbayev), whose published weights load as they are.

``narrow_resnet`` has projections for shortcuts and D = 512, and is another network.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.models.base import declare_stages, draw_fan_out
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

STAGES = ((16, 1), (32, 2), (64, 2))
"""Channels of each stage, and the stride with which it begins."""

# First 16 digits of the SHA-256 of each file of weights: trained on the whole training part of
# CIFAR-10, of which nothing is left to choose on.
PUBLISHED = {
    20: "02926273efb1dead",
    32: "897ca9a2e3e0f83d",
    44: "c0e417f177f2f9e7",
    56: "cf29b05e3acebb9d",
}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BN beside a shortcut without weights.

    (N, c_in, h, w) -> (N, c_out, h', w') with c_out >= c_in; h' = ceil(h / stride), stride 1 or 2.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.zeros = (channels - channels_in) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Add branch and shortcut, then ReLU."""
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        kept = x[:, :, :: self.stride, :: self.stride]
        return F.relu(branch + F.pad(kept, (0, 0, 0, 0, self.zeros, self.zeros)))


class ResNet(nn.Module):
    """The extractor, (N, channels, h, w) -> (N, 64), >= 0, with so many blocks in each stage."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        width = STAGES[0][0]
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        for number, (stage_width, stride) in enumerate(STAGES, start=1):
            first = BasicBlock(width, stage_width, stride)
            further = (BasicBlock(stage_width, stage_width, 1) for _ in range(blocks - 1))
            self.add_module(f"layer{number}", nn.Sequential(first, *further))
            width = stage_width
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        """Return features of normalised images."""
        for part in stages(self):
            images = part(images)
        return images


def stages(model: Any) -> list[nn.Module]:
    """Cut it: stem, three stages, pool."""
    stem = nn.Sequential(model.conv1, model.bn1, model.relu)
    return [stem, model.layer1, model.layer2, model.layer3, model.pool]


def build(channels: int, size: int, init: Init, *, depth: int) -> tuple[nn.Module, int]:
    """Build a network of the family of depth 6n + 2, and return 64 with it.

    ``init`` is ``reference``: torch's defaults; or ``timm``: Kaiming normal, fan out, and the last
    BN of every branch starts at zero.
    """
    del size
    extractor = ResNet(channels, (depth - 2) // 6)
    declare_stages(extractor, stages)
    if init == "timm":
        draw_fan_out(extractor)
        for block in extractor.modules():
            if isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)
    return extractor, STAGES[-1][0]


for _depth, _hash in PUBLISHED.items():
    BACKBONES.register(
        BackboneInfo(
            f"resnet{_depth}_he",
            f"ResNet-{_depth} A (He et al., CIFAR)",
            partial(build, depth=_depth),
            norm="imagenet",
            trained_on={_hash: "cifar10"},
        ),
    )
