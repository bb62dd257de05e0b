"""Base classes of the slots, with their plug-in, method and optimiser."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.methods import METHODS, Params
from tune_calib.spec.names import SLOTS
from tune_calib.spec.strict import StrictModel
from tune_calib.text import format_mistake, nearest, short_repr

M = TypeVar("M", bound=StrictModel)
Optimizer = Literal["sgd", "adam", "adamw"]


class Slot(StrictModel):
    """A slot of a trial spec."""

    kind: ClassVar[str]
    named: ClassVar[dict[str, Registry[Any]]]
    plugin: str | None = Field(None, exclude_if=lambda plugin: plugin is None)
    """Content hash of the plug-in that fills the slot (of two, joined by ``+``), so that two
    versions of it are two specs. Omitted from the JSON if there is none."""

    @classmethod
    def build(cls, **settings: Any) -> Self:
        """Build a single slot, like ``TrialSpec.build``."""
        return build(cls, settings, cls.kind)

    @model_validator(mode="before")
    @classmethod
    def _add_plugin(cls, settings: Any) -> Any:
        """Add the plug-in's hash; an existing hash must be that of the version in use."""
        if not isinstance(settings, dict):
            return settings
        names, origins = [], []
        for key, registry in cls.named.items():
            name = settings.get(key, cls.model_fields[key].default)
            if isinstance(name, str):
                names.append(name)
                origins.append(registry.origin(name))
        plugin = "+".join(dict.fromkeys(filter(None, origins))) or None
        if settings.get("plugin", plugin) != plugin:
            raise UserError(
                f"the {cls.kind} slot needs plug-in {short_repr(settings['plugin'])}, but "
                f"{' + '.join(names)} now comes from {plugin or 'none'}"
            )
        return {**settings, "plugin": plugin}


class MethodSlot(Slot):
    """A slot that a registered method fills."""

    named: ClassVar = {"method": METHODS}
    method: str
    """A name of the method registry."""
    # Serialised as its own class: as the base class, it would be hashed without any field.
    params: SerializeAsAny[Params]
    """The method's own hyper-parameters."""

    # Before pydantic reads the slot: by its annotation, params has no field at all.
    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        field = cls.model_fields["method"]
        if "method" not in settings and field.is_required():
            return settings
        info = METHODS[settings.get("method", field.default)]
        # UserError is not a ValueError, so pydantic passes it on as the single line that it is.
        if info.kind != cls.kind:
            raise UserError(f"method {info.name!r} is a {info.kind} method, not a {cls.kind} one")
        params = settings.get("params", {})
        if isinstance(params, dict):
            subject = f"method {info.name!r}"
            refuse_unknown(params, list(info.params.model_fields), subject, info.kind)
            params = build(info.params, params, info.kind, prefix=f"{subject}: ")
        return {**settings, "method": info.name, "params": params}


class PostHocSlot(MethodSlot):
    """A transform of the logits, fitted on ``calib``."""

    kind: ClassVar[str] = "posthoc"

    @property
    def reads_features(self) -> bool:
        return bool(METHODS[self.method].implementation.reads_features)


class OptimisedSlot(MethodSlot):
    """A slot whose method is trained by a first-order optimiser."""

    seed: int = Field(0, ge=0)
    """Seed of all randomness of the slot."""
    epochs: int = Field(ge=1)
    """Passes over the training split."""
    batch_size: int = Field(128, ge=1)
    """Samples per step."""
    optimizer: Optimizer = "sgd"
    """SGD (with `momentum`), Adam or AdamW (betas 0.9 and 0.999)."""
    lr: float = Field(0.1, gt=0)
    """Initial learning rate."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(5e-4, ge=0)
    """Weight decay of all parameters."""
    clip_grad_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of the gradient; none if absent."""
    loss_reduction: Literal["sum", "mean"] = "mean"
    """Reduction over the samples of a batch; with gradient clipping, the two amount to different
    optimisers (docs/pages/methods/index.md#summed-loss)."""
    augment: Literal["standard", "none"] = "standard"
    """`standard`: random crop after padding and random flip, as defined by the data set."""
    select: Literal["last", "best_val_acc", "min_val_nll", "min_refined_nll"] = "last"
    """Epoch whose weights are the result; all but `last` are judged on the split `select`.
    `min_refined_nll` is the NLL after temperature scaling on `select` (Berta et al., 2025), for
    classifiers that are calibrated afterwards."""


def refuse_unknown(keys: Iterable[str], settings: list[str], subject: str, slot: str) -> None:
    for key in keys:
        if key not in settings:
            message = f"{subject} has no setting {key!r}{nearest(key, settings)}"
            raise UserError(message, f"{slot}.{key}")


def build(model: type[M], settings: Mapping[str, Any], *above: str, prefix: str = "") -> M:
    """Build a model; an error says which setting is wrong, as ``slot.key``."""
    try:
        return model(**settings)
    except ValidationError as error:
        first, *others = error.errors()
    depth = 2 if first["loc"][:1] and first["loc"][0] in SLOTS else 1
    field = first["loc"][:depth]
    complaints = [format_mistake(first)]
    for mistake in others:  # each type that a setting accepts has an error of its own
        if mistake["loc"][:depth] == field:
            complaints.append(format_mistake(mistake).removeprefix("must be "))
    message = " or ".join(dict.fromkeys(complaints))
    if field:
        message = f"{'.'.join(map(str, field))}: {message}, got {short_repr(first['input'])}"
    location = [*above, *map(str, field)][:2]
    raise UserError(prefix + message, ".".join(location) if len(location) > 1 else None)
