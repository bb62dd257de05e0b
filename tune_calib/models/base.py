"""Construction of networks, parts shared by several backbones, and stages of backbones."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from tune_calib.determinism import child_seed
from tune_calib.models.network import Network

# Plug-ins of earlier versions import the record from here.
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init  # noqa: F401

FEATURE_WIDTH = 512
"""Number of features of our own small backbones, as in a ResNet-18."""


def declare_stages(backbone: nn.Module, cut: Callable[[Any], list[nn.Module]]) -> None:
    """Declare how a backbone is split into stages, for ``Network.stages``.

    ``cut`` returns the consecutive parts of the extractor. The last part pools the maps of the part
    before it, (N, D, h, w) -> (N, D).
    """
    # Not a regular attribute: modules of timm have their own ``stages``, and this is no state.
    vars(backbone)["cut_into_stages"] = cut


def name_last_layer(backbone: nn.Module, name: str | None) -> None:
    """Declare the last layer's name in weights of the whole classifier, or None without one."""
    vars(backbone)["name_of_last_layer"] = name


def cut_sequential(backbone: nn.Sequential, bounds: Sequence[int]) -> list[nn.Module]:
    """Split a sequence before the positions ``bounds``."""
    return [backbone[start:end] for start, end in pairwise((0, *bounds, len(backbone)))]


def feature_stage(channels: int, width: int = FEATURE_WIDTH) -> nn.Sequential:
    """Build 1x1 convolution, BN, ReLU, global average: (N, channels, h, w) to (N, width), >= 0."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
    )


def reset(module: nn.Module, kind: type[nn.Module]) -> None:
    """Reset the parameters of all modules of a kind to torch's defaults."""
    for part in module.modules():
        if isinstance(part, kind):
            part.reset_parameters()  # type: ignore[operator]


def draw_fan_out(module: nn.Module) -> None:
    """Initialise every convolution from N(0, sqrt(2 / (k * k * out))) (He et al., ICCV 2015)."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


def build_network(
    backbone: str,
    init: Init,
    channels: int,
    size: int,
    classes: int,
    seed: int,
    is_bf16: bool = False,
) -> Network:
    """Build a network on the CPU whose weights depend only on the arguments.

    The global generators are restored.

    Args:
        backbone: a name of ``BACKBONES``.
        init: ``reference``, as in the code of the papers, or ``timm``, as in timm.
        channels: channels of the images.
        size: height and width of the images, in pixels.
        classes: number of classes.
        seed: seed of the network slot.
        is_bf16: whether the backbone computes in bfloat16; its weights are float32.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also seed the GPUs.
        torch.default_generator.manual_seed(child_seed(seed, "init"))
        extractor, width = BACKBONES[backbone].build(channels, size, init)
        return Network(extractor, width, classes, is_bf16)
