"""A network: a backbone that computes features and a linear head that computes logits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tune_calib.errors import UserError


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
                f"this backbone ({type(self.backbone).__name__}) cannot be run stage by stage; "
                "use e.g. small_cnn, resnet18 or densenet121"
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
