"""Convolutional networks written here: small ones, and the CIFAR ResNets of He et al.

The small networks take images from 8x8 grey to 32x32 colour. ``small_vgg`` fits a few thousand
images perfectly in a dozen epochs: it is the cheapest network that is as over-confident as those of
the papers. ``fast_dct``, of recipe ``fast``, needs .85 GFLOP for training on one 32x32 image;
``fast_cnn``, of earlier versions of that recipe, lacks its first layer.

``resnet20_he`` and so on follow He et al. (CVPR 2016, section 4.2) exactly: 6n + 2 layers,
shortcuts of option A, D = 64. The names of the tensors are those of akamaster's
pytorch_resnet_cifar10 (Yerlan Idelbayev), whose published weights can be loaded without conversion.
``resnet20`` and so on are other networks: shortcuts that change the shape are projections (option
B, as in the code of MDCA and CRL), and a 1x1 convolution widens the 64 channels to D = 512, so that
heads that mask features have as many as with a wide network.

All features are >= 0. The values of ``init`` are ``reference`` (torch's defaults) and ``timm``
(Kaiming normal, fan out, and the last BN of every branch starts at zero).
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from scipy.fft import dct
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.models.network import FEATURE_WIDTH, feature_stage, finish
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

CNN_WIDTHS = (32, 64, 128)
VGG_WIDTHS = (32, 64, 128, 256, 512)
FAST_WIDTHS = (64, 256, 256)

WIDTH = 16  # number of channels of the first convolution of a ResNet
STAGES = ((16, 1), (32, 2), (64, 2))  # channels and first stride of each stage of a ResNet
DEPTHS = (8, 20, 32, 56)  # depths of the narrow networks, not counting their 1x1 convolutions

# First 16 digits of the SHA-256 of each file of weights. They were trained on the whole training
# part of CIFAR-10, which leaves no images for selection.
PUBLISHED = {
    20: "02926273efb1dead",
    32: "897ca9a2e3e0f83d",
    44: "c0e417f177f2f9e7",
    56: "cf29b05e3acebb9d",
}


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


class PatchTransform(nn.Module):
    """Decorrelated 2x2 patches and their negatives, (N, C, h, w) -> (N, 8 C, h - 1, w - 1), >= 0.

    The discrete cosine transform of patches and channels is close to the principal components of
    natural images. BN without weights scales each component to variance 1; ReLU follows. Unlike the
    whitening layer of K. Jordan (2024, arXiv:2404.00498, section 3.2), it needs no images.
    """

    basis: Tensor  # (4 C, C, 2, 2), orthonormal

    def __init__(self, channels: int) -> None:
        super().__init__()
        channel, pixel = (dct(np.eye(size), axis=0, norm="ortho") for size in (channels, 2))
        basis = torch.tensor(np.kron(channel, np.kron(pixel, pixel)), dtype=torch.float32)
        self.register_buffer("basis", basis.view(-1, channels, 2, 2), persistent=False)
        # Components of small variance are mostly noise, which this epsilon does not amplify.
        self.norm = nn.BatchNorm2d(len(basis), eps=5e-4, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        components = self.norm(F.conv2d(x, self.basis))
        return F.relu(torch.cat([components, -components], 1))


class GlobalMax(nn.Module):
    """Maximum of each map, (N, C, h, w) -> (N, C), whose gradient is deterministic on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        maxima: Tensor = x.flatten(2).max(2).values
        return maxima


def build_fast(
    channels: int, _: int, init: Init, *, is_transformed: bool = False
) -> tuple[nn.Module, int]:
    """Build three blocks of two 3x3 convolutions and a global maximum over D = 256 maps.

    After the first convolution of each block, a 2x2 max pool halves the maps, so that the second
    convolution costs a quarter. BN and ReLU follow both. With ``is_transformed``, a
    ``PatchTransform`` comes first, and each convolution starts as the identity of its first
    channels.
    """
    layers: list[nn.Module] = []
    bounds: list[int] = []
    if is_transformed:
        layers.append(PatchTransform(channels))
        channels *= 8
    for width in FAST_WIDTHS:
        for width_in, pools in ((channels, [nn.MaxPool2d(2, ceil_mode=True)]), (width, [])):
            convolution = nn.Conv2d(width_in, width, 3, padding=1, bias=False)
            if is_transformed:
                nn.init.dirac_(convolution.weight.data[:width_in])
            layers += [convolution, *pools, nn.BatchNorm2d(width), nn.ReLU()]
        bounds.append(len(layers))
        channels = width
    layers.append(GlobalMax())
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


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BN and a shortcut, (N, c_in, h, w) -> (N, c_out, h', w').

    h' = ceil(h / stride) with stride 1 or 2. The shortcut is a projection where the shape changes,
    or it has no weights and c_out >= c_in. If ``init`` is ``timm``, the last BN starts at zero.
    """

    def __init__(
        self, channels_in: int, channels: int, stride: int, projects: bool, init: Init
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        if init == "timm":
            nn.init.zeros_(self.bn2.weight)
        self.stride = stride
        self.zeros = (channels - channels_in) // 2
        self.shortcut: nn.Module | None = None
        if projects:
            self.shortcut = nn.Identity()
            if stride != 1 or channels_in != channels:
                projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
                self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.shortcut is not None:
            return F.relu(branch + self.shortcut(x))
        strided = x[:, :, :: self.stride, :: self.stride]
        return F.relu(branch + F.pad(strided, (0, 0, 0, 0, self.zeros, self.zeros)))


def _stages(depth: int, projects: bool, init: Init) -> Iterator[list[BasicBlock]]:
    width = WIDTH
    for channels, stride in STAGES:
        inputs = [(width, stride), *[(channels, 1)] * ((depth - 2) // 6 - 1)]
        yield [BasicBlock(width_in, channels, step, projects, init) for width_in, step in inputs]
        width = channels


def build_he(channels: int, _: int, init: Init, *, depth: int) -> tuple[nn.Module, int]:
    """Build the paper's network of depth 6n + 2, D = 64."""
    parts = OrderedDict[str, nn.Module](
        conv1=nn.Conv2d(channels, WIDTH, 3, 1, 1, bias=False),
        bn1=nn.BatchNorm2d(WIDTH),
        relu=nn.ReLU(),
    )
    for number, blocks in enumerate(_stages(depth, projects=False, init=init), 1):
        parts[f"layer{number}"] = nn.Sequential(*blocks)
    parts["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
    return finish(nn.Sequential(parts), (3, 4, 5, 6), init), STAGES[-1][0]


def build_narrow(channels: int, _: int, init: Init, *, depth: int) -> tuple[nn.Module, int]:
    """Build a narrow network of depth 6n + 2, D = 512."""
    layers: list[nn.Module] = [nn.Conv2d(channels, WIDTH, 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(WIDTH), nn.ReLU()]
    bounds: list[int] = []
    for blocks in _stages(depth, projects=True, init=init):
        bounds.append(len(layers))
        layers += blocks
    bounds.append(len(layers))
    layers += feature_stage(STAGES[-1][0])
    # The last stage is only the pool, with two modules; the 1x1 convolution before it belongs to
    # the stage before.
    return finish(nn.Sequential(*layers), (*bounds, len(layers) - 2), init), FEATURE_WIDTH


BACKBONES.register(BackboneInfo("small_cnn", "Small CNN", build_cnn))
BACKBONES.register(BackboneInfo("small_vgg", "Small VGG", build_vgg))
BACKBONES.register(BackboneInfo("fast_cnn", "Fast CNN", build_fast))
_build_dct = partial(build_fast, is_transformed=True)
BACKBONES.register(BackboneInfo("fast_dct", "Fast CNN, DCT", _build_dct))

for _depth in DEPTHS:
    build = partial(build_narrow, depth=_depth)
    BACKBONES.register(BackboneInfo(f"resnet{_depth}", f"ResNet-{_depth} (narrow, CIFAR)", build))

for _depth, _hash in PUBLISHED.items():
    BACKBONES.register(
        name=f"resnet{_depth}_he",
        title=f"ResNet-{_depth} A (He et al., CIFAR)",
        build=partial(build_he, depth=_depth),
        norm="imagenet",
        trained_on={_hash: "cifar10"},
    )
