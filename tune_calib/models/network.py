"""Networks, their construction, and parts and stages of backbones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES, Init

FEATURE_WIDTH = 512  # number of features of our own small backbones, as in a ResNet-18


class Output(NamedTuple):
    """Features (N, D), the inputs of the head, and unnormalised logits (N, C)."""

    features: Tensor
    logits: Tensor


class Network(nn.Module):
    """A backbone, which maps (N, channels, size, size) to (N, width), with a linear head.

    With ``is_bf16``, the backbone computes in bfloat16 where that is safe (``torch.autocast``).
    Weights, features and logits are always float32.
    """

    def __init__(
        self, backbone: nn.Module, width: int, classes: int, is_bf16: bool = False
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, classes)
        self.width = width
        self.is_bf16 = is_bf16

    def forward(self, images: Tensor) -> Output:
        """Return features and logits of normalised images (N, channels, size, size)."""
        features = self.features(images)
        return Output(features, self.head(features))

    def features(self, images: Tensor) -> Tensor:
        """Return the features (N, D) of normalised images (N, channels, size, size)."""
        backbone = vars(self).get("compiled_backbone", self.backbone)
        with _bf16(images, self.is_bf16):
            features: Tensor = backbone(images)
        return features.float() if self.is_bf16 else features

    @contextmanager
    def compiled(self) -> Iterator[Any]:
        """Compile the backbone, but not its stages, for the features in the block; return it."""
        # Private names (torch 2.12 to 2.15); imported here, since it takes a second.
        from torch._dynamo import config

        # The code of all backbones counts towards a limit, beyond which torch would silently not
        # compile, and a second size of batches would give slower code for any size.
        torch.compiler.reset()
        # Not a regular attribute: as a submodule it would be in the checkpoint twice.
        vars(self)["compiled_backbone"] = backbone = torch.compile(self.backbone, dynamic=False)
        try:
            with config.patch(fail_on_recompile_limit_hit=True):
                yield backbone
        finally:
            del vars(self)["compiled_backbone"]

    def stages(self) -> list[nn.Module]:
        """Return the consecutive parts of the backbone.

        The last part pools the maps of the part before it, (N, D, h, w) -> (N, D). The parts share
        their weights and their mode with the backbone.
        """
        cut = getattr(self.backbone, "cut_into_stages", None)
        if cut is None:
            raise UserError(
                f"{type(self.backbone).__name__} cannot be run stage by stage; use e.g. resnet18"
            )
        stages: list[nn.Module] = cut(self.backbone)
        return [_Bf16(stage) for stage in stages] if self.is_bf16 else stages


class _Bf16(nn.Module):
    """A stage that computes in bfloat16 and returns float32."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, maps: Tensor) -> Tensor:
        with _bf16(maps, is_on=True):
            outputs: Tensor = self.stage(maps)
        return outputs.float()


def _bf16(inputs: Tensor, is_on: bool) -> AbstractContextManager[Any]:
    # No disabled autocast: the meta device, on which costs are counted, does not support it.
    return torch.autocast(inputs.device.type, torch.bfloat16) if is_on else nullcontext()


@contextmanager
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
