"""Networks of timm: those of the calibration papers, and any classification model.

The networks of the papers for CIFAR and Tiny-ImageNet are built from timm's classes. Definitions
and parameter counts follow the code of Mukhoti et al. (NeurIPS 2020,
https://github.com/torrvision/focal_calibration), which MbLS, AdaFocal and FeDLaS share. WRN-28-10
follows TST and BalCAL. The linear head is initialised like that of every other network. Features
are >= 0. With ``init`` = ``timm``, the last BN of every branch starts at 0.

timm (https://github.com/huggingface/pytorch-image-models) takes seconds to import, so it is
imported only when it is needed. The placeholder of imported features and logits, which have no
backbone, is here too; the registry resolves its name but does not list it.
"""

from functools import lru_cache, partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from tune_calib.errors import UserError
from tune_calib.models.network import declare_stages, draw_fan_out, name_last_layer, reset
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init
from tune_calib.spec.names import IMPORTED

CIFAR_STEM_UP_TO = 64  # pixels; up to it, a ResNet starts with a 3x3 convolution and no pool
TITLES = {"vit_base_patch16_384": "ViT-B/16"}  # names of timm models in the papers


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
    tagged = list(map(timm.get_pretrained_cfg, timm.list_pretrained(f"{name}.*")))
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
        reason = (str(error).splitlines() or [type(error).__name__])[0]
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
    """Replace the stem of a timm ResNet by a 3x3 convolution of stride 1 without a pool."""
    model.conv1 = nn.Conv2d(channels, model.bn1.num_features, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    draw_fan_out(model.conv1)  # like the other convolutions of timm


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
    """Return the number of features; some models fail here since their maps become too small."""
    # In evaluation mode, since an image of zeros must not change the batch statistics.
    features = model.eval()(torch.zeros(1, channels, size, size))
    model.train()
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise ValueError("it returns no feature vector")
    return features.shape[1]


def resnet(channels: int, size: int, init: Init, *, name: str) -> tuple[nn.Module, int]:
    """Build ResNet-50 or ResNet-101.

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
    """Build "ResNet-110": bottlenecks [3, 4, 26, 3], 45.9 M parameters, D = 2048.

    Convolutions have torch's defaults (``reference``) or are Kaiming normal, fan out (``timm``).
    """
    from timm.models.resnet import Bottleneck, ResNet

    # Built by class, since timm has no model of that name.
    kind: Any = ResNet  # timm's annotations expect an instance of a block, not a class
    model = kind(Bottleneck, (3, 4, 26, 3), 0, channels, zero_init_last=init == "timm")
    use_cifar_stem(model, channels)
    declare_stages(model, resnet_stages)
    if init == "reference":
        reset(model, nn.Conv2d)
    return model, model.num_features


def wrn26_10(channels: int, _: int, init: Init) -> tuple[nn.Module, int]:
    """Build "WRN-26-10": three groups of four basic blocks, 36.5 M parameters, D = 640.

    Convolutions are Kaiming normal, fan out, in both initialisations.
    """
    from timm.models.resnet import BasicBlock, ResNet

    kind: Any = ResNet
    widths = 160, 320, 640
    model = kind(BasicBlock, (4, 4, 4), 0, channels, channels=widths, zero_init_last=init == "timm")
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

    Batch normalisations have momentum 0.01. Convolutions of stride 2 are padded on the right and at
    the bottom only. All are Kaiming normal, fan out, in both initialisations, and with ``timm`` the
    last one of every branch starts at 0.
    """
    from timm.layers.create_conv2d import create_conv2d
    from timm.layers.norm_act import BatchNormAct2d
    from timm.models.resnetv2 import ResNetV2

    kind: Any = ResNetV2
    sizes = {"layers": [4, 4, 4], "channels": (160, 320, 640), "num_classes": 0, "stem_chs": 16}
    model = kind(
        **sizes,
        in_chans=channels,
        preact=True,
        basic=True,
        bottle_ratio=1.0,
        zero_init_last=init == "timm",
        # By default, timm's class uses GroupNorm and standardised convolutions. Padding "same" pads
        # a stride of 2 on one side, as the authors' program does; padding both sides would change
        # the logits.
        norm_layer=partial(BatchNormAct2d, momentum=0.01),
        conv_layer=partial(create_conv2d, padding="same"),
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
    """Build DenseNet-121 with the CIFAR stem: 7.0 M parameters, D = 1024.

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


def _refuse(*_: int | Init) -> NoReturn:
    raise UserError("this needs a network, which imported data do not have")


_IMPORTED = BackboneInfo(IMPORTED, "imported", _refuse, has_stages=False)

BACKBONES.register_family(lambda name: _IMPORTED if name == IMPORTED else None, lambda: [IMPORTED])
BACKBONES.register_family(resolve, names)
