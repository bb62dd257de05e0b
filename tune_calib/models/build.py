"""Build the untrained network of a slot; the module ``network`` itself needs torch alone."""

import torch

from tune_calib.determinism import child_seed
from tune_calib.models.network import Network
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init


def build_network(
    backbone: str,
    init: Init,
    channels: int,
    size: int,
    classes: int,
    seed: int,
    is_bf16: bool = False,
) -> Network:
    """Build a network on the CPU; its weights depend on the arguments alone.

    The global generators are as before afterwards.

    Args:
        backbone: a name of ``BACKBONES``.
        init: ``reference``, as the code of the papers draws, or ``timm``, as timm does.
        channels: of the images.
        size: height and width of the images, in pixels.
        classes: number of classes.
        seed: of the network slot.
        is_bf16: the backbone will compute in bfloat16; its weights are float32.

    Raises:
        UserError: the backbone is unknown or cannot take images of that size.
    """
    info: BackboneInfo = BACKBONES[backbone]
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed the GPUs too.
        torch.default_generator.manual_seed(child_seed(seed, "init"))
        extractor, width = info.build(channels, size, init)
        return Network(extractor, width, classes, is_bf16)
