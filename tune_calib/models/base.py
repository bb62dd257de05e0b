"""Construction of networks, parts shared by several backbones, and stages of backbones."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from tune_calib.determinism import child_seed
from tune_calib.models.network import Network
from tune_calib.spec.backbones import BACKBONES, Init

FEATURE_WIDTH = 512  # number of features of our own small backbones, as in a ResNet-18


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a user's module into evaluation mode, and each of its parts back into its own mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


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


def finish(backbone: nn.Sequential, bounds: Sequence[int], init: Init) -> nn.Sequential:
    """Declare the stages of a sequence, which begin at ``bounds``, and initialise its weights."""
    ends = list(pairwise((0, *bounds, len(backbone))))
    declare_stages(backbone, lambda layers: [layers[start:end] for start, end in ends])
    if init == "timm":
        draw_fan_out(backbone)
    return backbone


def feature_stage(channels: int) -> nn.Sequential:
    """Build 1x1 convolution, BN, ReLU, global average: (N, channels, h, w) to (N, 512), >= 0."""
    return nn.Sequential(
        nn.Conv2d(channels, FEATURE_WIDTH, 1, bias=False),
        nn.BatchNorm2d(FEATURE_WIDTH),
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

    ``init`` is ``reference``, as in the code of the papers, or ``timm``, as in timm. ``size`` is
    the height and width of the images. The global generators are restored.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also seed the GPUs.
        torch.default_generator.manual_seed(child_seed(seed, "init"))
        extractor, width = BACKBONES[backbone].build(channels, size, init)
        return Network(extractor, width, classes, is_bf16)
