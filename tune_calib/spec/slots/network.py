"""The slot of the network: how it is trained, or the identity of a frozen one."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import IMPORTED, POOL
from tune_calib.spec.slots.base import OptimisedSlot, PostHocSlot
from tune_calib.spec.slots.data import ImportedData
from tune_calib.spec.slots.pool import Average
from tune_calib.spec.strict import StrictModel
from tune_calib.text import short_repr

Precision = Literal["fp32", "tf32", "bf16"]
Schedule = Literal["steps", "cosine", "one_cycle"]
Execution = Literal["auto", "eager", "graph", "compiled"]


class Pool(StrictModel):
    """Networks of one data set whose predictions are averaged."""

    members: "tuple[NetworkSlot | ImportedData, ...]" = Field(min_length=2)
    """The networks, or the imports of their logits."""
    average: Average = "probabilities"
    """What is averaged, with equal weights."""
    posthoc: PostHocSlot | None = Field(None, exclude_if=lambda posthoc: posthoc is None)
    """Transform that is fitted to each member on `calib`, before the average."""


class NetworkSlot(OptimisedSlot):
    """A network and how it is trained; with ``epochs`` = 0 it is frozen, not trained."""

    kind: ClassVar[str] = "network"
    named: ClassVar = {"method": METHODS, "backbone": BACKBONES}
    method: str = "ce"
    """A name of the method registry."""
    backbone: str = "small_cnn"
    """A name of the backbone registry or any timm name (with a CIFAR stem)."""
    epochs: int = Field(30, ge=0)
    """Passes over the training split; 0 uses the network of `weights` unchanged
    (docs/pages/own-network.md)."""
    milestones: tuple[float, ...] = (3 / 7, 5 / 7)
    """Shares of the epochs at which the learning rate is multiplied by `lr_decay`."""
    lr_decay: float = Field(0.1, gt=0, le=1)
    """Factor at each milestone."""
    # Settings added later are omitted from the JSON at their default, so that specs from before
    # keep their hash.
    schedule: Schedule = Field("steps", exclude_if=lambda schedule: schedule == "steps")
    """Schedule of the learning rate: in `steps` at `milestones`; `cosine`, to 0 at the end; or
    `one_cycle` (Smith and Topin, 2019), which rises from `lr`/25 over `warmup` and falls to
    `lr`/250,000, each along half a cosine, like torch's `OneCycleLR` without cycling momentum."""
    warmup: float = Field(0.0, ge=0, lt=1, exclude_if=lambda share: share == 0)
    """Share of the epochs over which the learning rate rises, batch by batch; linearly from 0 with
    `steps` and `cosine`."""
    nesterov: bool = Field(False, exclude_if=lambda nesterov: not nesterov)
    """Use Nesterov momentum (with SGD)."""
    augment_until: float = Field(1.0, gt=0, le=1, exclude_if=lambda share: share == 1)
    """Share of the epochs after which images are no longer augmented, so that the last epochs fit
    the unchanged training images. Not used with `augment` = `none`."""
    drop_last: bool = False
    """Drop the incomplete last batch of an epoch (docs/pages/methods/index.md#last-batch)."""
    init: Literal["reference", "timm"] = "reference"
    """Initialisation of convolutions: `reference` uses torch's defaults, `timm` keeps timm's."""
    weights: str | None = Field(None, exclude_if=lambda weights: weights is None)
    """Safetensors file with the weights that the network starts from (docs/pages/data.md#weights);
    a spec contains the hash of the file instead."""
    clip_grad_norm: float | None = Field(2.0, gt=0)
    """Largest L2 norm of the gradient; none if absent."""
    precision: Precision = Field("fp32", exclude_if=lambda precision: precision == "fp32")
    """Precision of the backbone's products, in training and in feature banks; losses, statistics of
    batch normalisation and weights stay in float32. `tf32` (GPUs from Ampere on) rounds factors to
    10 bits of mantissa, also those of the linear head and of heads on its features; `bf16` also
    stores feature maps with 7 (autocast), and leaves heads in float32."""
    # Never in the JSON, because it is not part of the identity of a trial.
    execution: Execution = Field("auto", exclude=True)
    """Execution of the steps of training, of networks and heads: `eager`; `graph`, captured as a
    CUDA graph; `compiled`, captured with a compiled backbone. `auto` captures on a GPU and compiles
    in long trainings (docs/pages/speed.md#execution-of-steps). It changes speed and last digits,
    but not the identity of a trial."""
    deterministic: bool = Field(False, exclude_if=lambda deterministic: not deterministic)
    """Use only deterministic algorithms, which are slower, on a GPU; a CPU always does."""
    threads: int = Field(1, ge=1, exclude_if=lambda threads: threads == 1)
    """Number of torch threads, and of CPU cores that Ray reserves; frozen networks share all cores.
    It changes the order of sums and thus the last digits, so it is part of the spec."""
    portable: bool = Field(False, exclude_if=lambda portable: not portable)
    """Compute with one thread as every x86 processor with AVX2 does; this includes heads and
    transforms on the network."""

    pool: Pool | None = Field(None, exclude_if=lambda pool: pool is None)
    """Networks whose average takes the place of the network, which is the first of them."""

    @property
    def members(self) -> "tuple[NetworkSlot, ...]":
        """Return the networks that are trained: those of a pool, or this one alone."""
        members = self.pool.members if self.pool else ()
        return tuple(member for member in members if isinstance(member, NetworkSlot)) or (self,)

    @property
    def method_name(self) -> str:
        """Return the method, or those of a pool, e.g. ``pool:ce:ls``."""
        names = dict.fromkeys(member.method for member in self.members)
        return POOL + ":".join(names) if self.pool else self.method

    @property
    def is_frozen(self) -> bool:
        """Return whether the network comes from ``weights`` or an import and is not trained."""
        return self.epochs == 0

    @property
    def is_captured(self) -> bool:
        """Return whether it asks for captured steps, which need a GPU and a suitable method."""
        return self.execution in ("graph", "compiled")

    @property
    def reads_held_out(self) -> bool:
        """Return whether `select` or `calib` can change the weights."""
        return any(member.select != "last" for member in self.members) or self.reads_calib

    @property
    def reads_calib(self) -> bool:
        """Return whether `calib` can change the weights."""
        return any("calib_pass" in METHODS[member.method].needs for member in self.members)

    @model_validator(mode="before")
    @classmethod
    def _read_compile(cls, settings: Any) -> Any:
        if not isinstance(settings, dict) or "compile" not in settings:
            return settings
        if settings["compile"] is not False:
            raise UserError(
                "network.compile was replaced by network.execution=compiled, and a network that it "
                "compiled must be trained again"
            )
        return {key: value for key, value in settings.items() if key != "compile"}

    @model_validator(mode="after")
    def _fits_frozen(self) -> Self:
        if not self.is_frozen:
            return self
        if self.weights is None and self.backbone != IMPORTED:
            raise UserError(
                "network.epochs is 0, so nothing is trained: set it to 1 or more, or give `weights`"
            )
        if self.method != "ce":
            raise UserError(
                f"network method {short_repr(self.method)} trains the network, and a frozen one "
                "(network.epochs=0) is not trained; leave it out",
                "network.epochs",
            )
        if self.seed:
            message = "a frozen network (network.epochs=0) has no seed; use `head_seeds`"
            raise UserError(message, "network.epochs")
        for key in OF_TRAINING:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise UserError(f"network.{key}: a frozen network (epochs=0) is not trained")
        return self

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.portable and self.threads > 1:
            raise ValueError("portable numbers need threads=1")
        if self.portable and (self.precision != "fp32" or self.is_captured):
            raise ValueError("portable numbers need precision=fp32 and execution=eager or auto")
        if self.schedule == "one_cycle" and not self.warmup:
            raise ValueError("schedule=one_cycle rises over warmup; set it, e.g. warmup=0.3")
        if self.nesterov and (self.optimizer != "sgd" or not self.momentum):
            raise ValueError("nesterov needs optimizer=sgd with momentum")
        return self

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str) -> str:
        BACKBONES[value]
        return value

    @field_validator("milestones")
    @classmethod
    def _ordered(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)) or not all(0 < share < 1 for share in value):
            raise ValueError(f"milestones must rise within (0, 1), got {value}")
        return value


_OF_FROZEN = {
    "plugin", "method", "params", "seed", "backbone", "weights", "epochs", "precision", "execution",
    "deterministic", "threads", "portable", "pool",
}  # fmt: skip
OF_TRAINING = tuple(key for key in NetworkSlot.model_fields if key not in _OF_FROZEN)
"""Settings of a network slot that do not apply to a frozen network."""
