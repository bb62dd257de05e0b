"""Any classification model of timm as a backbone; ResNets get the CIFAR stem for small images.

timm (https://github.com/huggingface/pytorch-image-models) takes seconds to import, so it is
imported only when a name is not one of our own backbones.
"""

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.errors import UserError
from tune_calib.models.base import declare_stages, draw_fan_out, name_last_layer, reset
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init

CIFAR_STEM_UP_TO = 64
"""Largest image size, in pixels, for which a ResNet starts with a 3x3 convolution and no pool."""

TITLES = {"vit_base_patch16_384": "ViT-B/16"}
"""Names of timm models in the papers."""


@lru_cache(maxsize=64)
def resolve(name: str) -> BackboneInfo | None:
    """Return the record of a timm model, or None if timm does not know the name.

    Names with a tag of pre-trained weights (``resnet50.a1_in1k``) count as unknown, since networks
    start untrained.
    """
    if "." in name:
        return None
    import timm

    if not timm.is_model(name):
        return None
    family = timm.model_entrypoint(name).__module__.rpartition(".")[2]
    tagged = [timm.get_pretrained_cfg(each) for each in timm.list_pretrained(f"{name}.*")]
    norms = {(tuple(cfg.mean), tuple(cfg.std)) for cfg in tagged if cfg is not None}
    return BackboneInfo(
        name=name,
        title=f"{TITLES.get(name, name)} (timm)",
        build=partial(build, name=name),
        has_stages=family in ("resnet", "densenet"),
        # The constants of all weights that timm publishes for a model; None if they differ.
        norm=norms.pop() if len(norms) == 1 else None,
        # timm publishes no weights for ResNets with the CIFAR stem.
        norm_from=CIFAR_STEM_UP_TO + 1 if family == "resnet" else 0,
    )


def names() -> list[str]:
    """Return the names of timm models that ``resolve`` knows, including deprecated ones."""
    import timm.models

    return [name for name in dir(timm.models) if timm.models.is_model(name)]


def build(channels: int, size: int, init: Init, *, name: str) -> tuple[nn.Module, int]:
    """Build a timm model without its classifier; return it with its number of features.

    For images of up to 64 pixels, a model of timm's ResNet class starts with a 3x3 convolution of
    stride 1 and has no max pool, like the CIFAR ResNets of the calibration papers. ``init`` =
    ``timm`` keeps timm's initial weights; ``reference`` uses torch's defaults for every convolution
    and, in ResNets, for every BN, so that none starts at zero.
    """
    import timm
    from timm.models.densenet import DenseNet
    from timm.models.resnet import ResNet

    create: Any = timm.create_model
    config = timm.get_pretrained_cfg(name)
    # For models of a fixed image size, such as ViT.
    fixed = {"img_size": size} if config is not None and config.fixed_input_size else {}
    try:
        model = create(name, num_classes=0, in_chans=channels, **fixed)
        if isinstance(model, ResNet) and size <= CIFAR_STEM_UP_TO:
            use_cifar_stem(model, channels)
        width = _measure_width(model, channels, size)
    # timm does not check image sizes: a model can fail anywhere in its code with any of these.
    except (AssertionError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"timm cannot run {name!r} on {channels}x{size}x{size} images ({reason}); "
            "use another backbone, e.g. resnet18"
        ) from None
    name_last_layer(model, (model.pretrained_cfg or {}).get("classifier"))
    if isinstance(model, ResNet):
        declare_stages(model, resnet_stages)
    elif isinstance(model, DenseNet):
        declare_stages(model, densenet_stages)
    if init == "reference":
        reset(model, nn.Conv2d)
        if isinstance(model, ResNet):
            # timm starts the last BN of every branch at 0.
            reset(model, nn.BatchNorm2d)
    return model, width


def use_cifar_stem(model: Any, channels: int) -> None:
    """Replace the stem of a timm ResNet by a 3x3 convolution of stride 1 without a pool.

    The convolution is initialised like the others in timm: Kaiming normal, fan out.
    """
    model.conv1 = nn.Conv2d(channels, model.bn1.num_features, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    draw_fan_out(model.conv1)


def resnet_stages(model: Any) -> list[nn.Module]:
    """Split a timm ResNet: stem, up to four groups of blocks, pool."""
    stem = nn.Sequential(model.conv1, model.bn1, model.act1, model.maxpool)
    groups = [model.layer1, model.layer2, model.layer3, model.layer4]
    groups = [group for group in groups if not isinstance(group, nn.Identity)]
    return [stem, *groups, model.global_pool]


def densenet_stages(model: Any) -> list[nn.Module]:
    """Split a timm DenseNet: stem, dense blocks each with its transition, pool."""
    parts = dict(model.features.named_children())
    stages: list[list[nn.Module]] = [[]]
    for name, part in parts.items():
        if name.startswith("denseblock"):
            stages.append([])
        stages[-1].append(part)
    return [*(nn.Sequential(*stage) for stage in stages), model.global_pool]


@torch.no_grad()
def _measure_width(model: nn.Module, channels: int, size: int) -> int:
    """Return the number of features for one image.

    Some models can be built, but fail here because their maps become too small.
    """
    # In evaluation mode, since an image of zeros must not change the batch statistics.
    features = model.eval()(torch.zeros(1, channels, size, size))
    model.train()
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise ValueError("it returns no feature vector")
    return features.shape[1]


BACKBONES.register_family(resolve, names)
