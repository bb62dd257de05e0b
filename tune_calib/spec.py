"""Trial specs: frozen, validated, hashable fillings of the slots data, network, head, post-hoc.

A spec holds every setting that can change a number and nothing else (paths, devices and progress
stay outside), with all defaults written out, so that its hash is its identity.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from tune_calib.errors import UserError
from tune_calib.names import IMPORTED
from tune_calib.registry import (
    BACKBONES,
    DATASETS,
    METHODS,
    MethodInfo,
    Params,
    Registry,
    StrictModel,
    nearest,
)
from tune_calib.wording import complaint, shown

Optimizer = Literal["sgd", "adam", "adamw"]
Precision = Literal["fp32", "tf32", "bf16"]
Schedule = Literal["steps", "cosine", "one_cycle"]


class Slot(StrictModel):
    """A slot of a trial spec."""

    kind: ClassVar[str]
    named: ClassVar[dict[str, Registry[Any]]]
    plugin: str | None = Field(None, exclude_if=lambda plugin: plugin is None)
    """Content hash of the plug-in that what fills the slot is of (of two, both joined by ``+``), so
    that two versions of it are two specs. Left out of the JSON where there is none."""

    @classmethod
    def build(cls, **settings: Any) -> Self:
        """Build one slot alone; as ``TrialSpec.build``."""
        try:
            return cls(**settings)
        except ValidationError as error:
            raise UserError(_one_line(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _of_plugin(cls, given: Any) -> Any:
        """Say of which plug-in it is; one that says so already must be of the version in use."""
        if not isinstance(given, dict):
            return given
        names = {key: given.get(key, cls.model_fields[key].default) for key in cls.named}
        known = {key: name for key, name in names.items() if isinstance(name, str)}
        origins = dict.fromkeys(cls.named[key].origin(name) for key, name in known.items())
        now = "+".join(origin for origin in origins if origin is not None) or None
        if given.get("plugin", now) != now:
            raise UserError(
                f"the {cls.kind} slot is of plug-in {shown(given['plugin'])}, and "
                f"{' + '.join(known.values())} is of {now or 'none'} now; give `plugin` the file "
                "as it was"
            )
        return {**given, "plugin": now}


class FoundData(StrictModel):
    """What only its files say of a data set that has no record of its own."""

    classes: int = Field(ge=2)
    """Number of classes."""
    channels: Literal[1, 3]
    """1 is grey, 3 is colour."""
    stored: int = Field(ge=1)
    """Height and width of the images as they are kept."""
    size: int = Field(ge=1)
    """Height and width of the images as a network sees them."""
    mean: tuple[float, ...]
    """Of the pixels of the training part, per channel."""
    std: tuple[float, ...]
    """Of the pixels of the training part, per channel."""
    digest: str
    """Of all pixels and labels."""


Shares = tuple[float, float, float]
Norm = tuple[Annotated[tuple[float, ...], Field(min_length=1)], tuple[float, ...]]

SHARES: Shares = (0.25, 0.25, 0.5)
"""Of the test part, where it is held out: `select`, `calib` and `test`."""

OWN_NORM = "dataset"
"""How ``data.norm`` names the constants of the data set itself."""


class ImportedData(StrictModel):
    """Features and logits that others made (`tune-calib import`): what they are, not their name."""

    digest: str
    """Of all numbers and labels."""
    classes: int = Field(ge=2)
    """Number of classes."""
    width: int = Field(ge=0)
    """Number of features; 0 where logits alone are given."""
    train: int = Field(ge=0)
    """Samples of the split, 0 where it is not given; so the others."""
    select: int = Field(ge=1)
    calib: int = Field(ge=1)
    test: int = Field(ge=1)
    is_cut: bool
    """Whether `select` and `calib` are halves of one split that was given."""
    outputs: Literal["logits", "probs", "head"]
    """What the logits are: given ones, logarithms of given probabilities, or what the given last
    layer makes of the features."""

    @property
    def has_heads(self) -> bool:
        """Whether heads can be trained on it."""
        return self.width > 0 and self.train > 0


class DataSlot(Slot):
    """Which images, and what is done to the training split (the other splits stay clean).

    With ``imported`` there are no images, and the other settings have no meaning.
    """

    kind: ClassVar[str] = "data"
    named: ClassVar = {"dataset": DATASETS}
    dataset: str = "digits"
    """A name of the data set registry."""
    train_fraction: float = Field(1.0, gt=0, le=1)
    """Share of the training split that is kept."""
    label_noise: float = Field(0.0, ge=0, lt=1)
    """Share of training labels replaced by a uniformly drawn other class."""
    imbalance: float = Field(1.0, ge=1)
    """Size of the largest class over the smallest; classes in between follow an exponential
    profile (Cui et al., CVPR 2019)."""
    # Left out of the JSON at their default: specs of before they were settings keep their hash.
    split: str = Field("default", exclude_if=lambda split: split == "default")
    """Published rule that cuts the data set: `default` is that of its page, `whole` trains on all
    of the training part and takes `select` and `calib` from the test part; others are those of
    some papers (docs/pages/data.md#splits)."""
    labels: Literal["fine", "coarse"] = Field("fine", exclude_if=lambda labels: labels == "fine")
    """`coarse`: the 20 superclasses of CIFAR-100."""
    holdout: Literal["train", "test"] = Field("train", exclude_if=lambda part: part == "train")
    """Published part that `select` and `calib` are taken from. `test` trains on all of the training
    part and cuts the test part in three (docs/pages/data.md#a-network-that-saw-all)."""
    holdout_shares: Shares = Field(SHARES, exclude_if=lambda shares: shares == SHARES)
    """Of the test part with `holdout` = `test`: `select`, `calib`, `test`; they sum to one."""
    held_out_classes: tuple[int, ...] = Field((), exclude_if=lambda classes: not classes)
    """Classes by their numbers (after `labels`) whose images are left out of every split; the
    others are numbered anew. Their test images are the shift set `heldout`
    (docs/pages/shift.md#foreign-images)."""
    norm: str | Norm | None = Field(None, exclude_if=lambda norm: norm is None)
    """Constants that pixels are normalised by: a name, or mean and standard deviation of each
    channel as `[[r, g, b], [r, g, b]]`; those of the data set if absent or `dataset`
    (docs/pages/data.md#constants)."""
    test_norm: Literal["same", "legacy_imagenet"] = Field(
        "same", exclude_if=lambda norm: norm == "same"
    )
    """`legacy_imagenet` normalises test images, and they alone, by ImageNet's constants, as the
    programs of several papers do on CIFAR-100."""

    resize: int | None = Field(None, ge=8, exclude_if=lambda resize: resize is None)
    """Height and width that images of many sizes are resized to when they are decoded; that of the
    data set if absent."""
    crop: int | None = Field(None, ge=8, exclude_if=lambda crop: crop is None)
    """Height and width of the window of them that a network sees: a random one in training (with
    `augment` = `standard`), else the one in the middle."""
    grey: Literal["refuse", "convert"] = Field("refuse", exclude_if=lambda grey: grey == "refuse")
    """What becomes of a grey image in a folder or Parquet file of colour images."""
    image_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of the images of a Parquet file; it is found if absent."""
    label_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of the labels of a Parquet file; it is found if absent."""
    found: FoundData | None = Field(None, exclude_if=lambda found: found is None)
    """What the files of `imagefolder` and `parquet` say; filled in when a run is planned."""
    imported: str | ImportedData | None = Field(None, exclude_if=lambda imported: imported is None)
    """Name of features and logits that `tune-calib import` took in, with the data set `imported`;
    a spec holds what they are in its place (docs/pages/own-network.md#features-and-logits)."""

    @field_validator("dataset")
    @classmethod
    def _known(cls, value: str) -> str:
        DATASETS[value]
        return value

    @model_validator(mode="after")
    def _of_import(self) -> Self:
        if (self.dataset == IMPORTED) != (self.imported is not None):
            raise ValueError(
                f"dataset={IMPORTED} and imported=NAME go together: give both, or `--imported NAME`"
            )
        if self.imported is None:
            return self
        for key, info in type(self).model_fields.items():
            if key not in ("dataset", "imported", "plugin") and getattr(self, key) != info.default:
                raise ValueError(f"{key} is of images, and imported data have none; leave it out")
        return self

    @property
    def import_record(self) -> ImportedData | None:
        """What is imported; None of images, and of a name that nobody has looked up yet."""
        return self.imported if isinstance(self.imported, ImportedData) else None

    @field_validator("norm")
    @classmethod
    def _own_norm(cls, value: str | Norm | None) -> str | Norm | None:
        """One spec for what is said in two ways; constants must be some."""
        if isinstance(value, tuple) and not (len(value[0]) == len(value[1]) and min(value[1]) > 0):
            raise ValueError("needs as many means as standard deviations, and these above 0")
        return None if value == OWN_NORM else value

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        shares = self.holdout_shares
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"holdout_shares must be above 0 and sum to 1, got {shares}")
        if self.holdout == "train" and shares != SHARES:
            raise ValueError("holdout_shares goes with holdout=test; leave it out")
        if self.holdout == "test" and self.split != "default":
            raise ValueError(
                "holdout=test trains on all of the training part and cuts the test part by a rule "
                f"of its own; leave split={self.split} out"
            )
        return self

    @property
    def holds_out_train(self) -> bool:
        """Whether `select` and `calib` are of the published training part."""
        return self.holdout == "train" and self.split not in ("whole", "val_is_test")

    @field_validator("held_out_classes")
    @classmethod
    def _in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse options that the data set does not have."""
        DATASETS[self.dataset].as_asked(self)
        return self


class MethodSlot(Slot):
    """A slot that a registered method fills."""

    named: ClassVar = {"method": METHODS}
    method: str
    """A name of the method registry."""
    # As what it is: as the base class it would be serialised, and hashed, without a field.
    params: SerializeAsAny[Params]
    """The method's own hyper-parameters."""

    # Before pydantic reads the slot: by its annotation, params has no field at all.
    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        """Check the method's hyper-parameters by their own model."""
        if not isinstance(given, dict):
            return given
        field = cls.model_fields["method"]
        if "method" not in given and field.is_required():
            return given
        info = METHODS[given.get("method", field.default)]
        # UserError is no ValueError: pydantic lets it through as the one line that it is.
        if info.kind != cls.kind:
            raise UserError(f"method {info.name!r} is a {info.kind} method, not a {cls.kind} one")
        params = given.get("params", {})
        if isinstance(params, dict):
            params = _params(info, params)
        return {**given, "params": params}


class OptimisedSlot(MethodSlot):
    """A slot whose method is trained by a first-order optimiser."""

    seed: int = Field(0, ge=0)
    """The seed that drives every source of chance of the slot."""
    epochs: int = Field(ge=1)
    """Passes over the training split."""
    batch_size: int = Field(128, ge=1)
    """Samples a step."""
    optimizer: Optimizer = "sgd"
    """SGD (with `momentum`), Adam or AdamW (betas .9, .999)."""
    lr: float = Field(0.1, gt=0)
    """Learning rate at the start."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(5e-4, ge=0)
    """Weight decay on all parameters."""
    clip_grad_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of the gradient; none if absent."""
    loss_reduction: Literal["sum", "mean"] = "mean"
    """Over the samples of a batch: different optimisers once the gradient is clipped
    (docs/pages/readings.md#summed-loss)."""
    augment: Literal["standard", "none"] = "standard"
    """`standard`: crop with padding and flip, as the data set declares."""
    select: Literal["last", "best_val_acc", "min_val_nll"] = "last"
    """Which epoch's weights are the result; the others but `last` judge on the split `select`."""


class NetworkSlot(OptimisedSlot):
    """A network and how it is trained; with ``epochs`` = 0 a given one, which is not trained."""

    kind: ClassVar[str] = "network"
    named: ClassVar = {"method": METHODS, "backbone": BACKBONES}
    method: str = "ce"
    """A name of the method registry."""
    backbone: str = "small_cnn"
    """A name of the backbone registry or any timm name (with a CIFAR stem)."""
    epochs: int = Field(30, ge=0)
    """Passes over the training split; 0 takes the network as `weights` give it
    (docs/pages/own-network.md)."""
    milestones: tuple[float, ...] = (3 / 7, 5 / 7)
    """Shares of the epochs at which the learning rate is multiplied by `lr_decay`."""
    lr_decay: float = Field(0.1, gt=0, le=1)
    """Factor at each milestone."""
    # What came later is left out of the JSON at its default, so that specs of before it was a
    # setting keep their hash.
    schedule: Schedule = Field("steps", exclude_if=lambda schedule: schedule == "steps")
    """How the learning rate falls: in `steps` at `milestones`; `cosine`, to 0 at the end; or
    `one_cycle` (Smith and Topin, 2019): it rises from `lr`/25 over `warmup` and falls to
    `lr`/250,000, both as half a cosine, as torch's `OneCycleLR`, without a cycle of momentum."""
    warmup: float = Field(0.0, ge=0, lt=1, exclude_if=lambda share: share == 0)
    """Share of the epochs over which the learning rate rises, batch by batch; with `steps` and
    `cosine` linearly from 0."""
    nesterov: bool = Field(False, exclude_if=lambda nesterov: not nesterov)
    """Nesterov's momentum (of SGD)."""
    drop_last: bool = False
    """Leave the incomplete last batch of an epoch out (docs/pages/readings.md#last-batch)."""
    init: Literal["reference", "timm"] = "reference"
    """`reference` re-draws every convolution by torch's defaults, `timm` keeps timm's."""
    weights: str | None = Field(None, exclude_if=lambda weights: weights is None)
    """Safetensors file of the weights that the network starts from (docs/pages/data.md#weights); a
    spec holds the file's hash in its place."""
    clip_grad_norm: float | None = Field(2.0, gt=0)
    """Largest L2 norm of the gradient; none if absent."""
    precision: Precision = Field("fp32", exclude_if=lambda precision: precision == "fp32")
    """Of the backbone's products, in training and in banks; the linear head, losses, statistics of
    batch normalisation and weights stay in float32. `tf32` (GPUs from Ampere on) rounds factors to
    10 bits of mantissa, `bf16` also stores maps with 7 (autocast)."""
    compile: bool = Field(False, exclude_if=lambda compiled: not compiled)
    """Compile the backbone by `torch.compile` (on a GPU with CUDA graphs); losses are not. The
    first epoch then takes a minute or more longer, and last digits differ."""
    deterministic: bool = Field(False, exclude_if=lambda deterministic: not deterministic)
    """Only deterministic algorithms on a GPU too, where they are slower; a CPU has no others."""
    threads: int = Field(1, ge=1, exclude_if=lambda threads: threads == 1)
    """Torch threads, and CPU cores that Ray keeps for it; another number sums in another order
    and gives other digits, hence it is part of the spec."""
    portable: bool = Field(False, exclude_if=lambda portable: not portable)
    """Computed as every x86 processor with AVX2 does, on one thread; what stands on the network
    too."""

    @property
    def is_given(self) -> bool:
        """Whether it is taken as ``weights`` give it, and not trained."""
        return self.epochs == 0

    @model_validator(mode="after")
    def _given(self) -> Self:
        """One network is one spec: what only a training reads stays as it is."""
        if not self.is_given:
            return self
        if self.weights is None and self.backbone != IMPORTED:
            raise UserError(
                "network.epochs is 0, which trains nothing: at least 1, or give `weights` the file "
                "of a trained network"
            )
        refuse_training(
            {
                key: value
                for key, field in type(self).model_fields.items()
                if key in (*OF_TRAINING, "method", "seed")
                and (value := getattr(self, key)) != field.default
            }
        )
        return self

    @model_validator(mode="after")
    def _one_thread(self) -> Self:
        if self.portable and self.threads > 1:
            raise ValueError("portable numbers need threads=1")
        if self.portable and (self.precision != "fp32" or self.compile):
            raise ValueError("portable numbers need precision=fp32 and compile=false")
        return self

    @model_validator(mode="after")
    def _rises_and_falls(self) -> Self:
        if self.schedule == "one_cycle" and not self.warmup:
            raise ValueError("schedule=one_cycle rises over warmup; give it, e.g. warmup=0.3")
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


_OF_GIVEN = {
    "plugin", "method", "params", "seed", "backbone", "weights", "epochs", "precision", "compile",
    "deterministic", "threads", "portable",
}  # fmt: skip
OF_TRAINING = tuple(key for key in NetworkSlot.model_fields if key not in _OF_GIVEN)
"""Settings of a network slot that a given network has no use for."""


def refuse_training(asked: Mapping[str, Any]) -> None:
    """Refuse settings of a network slot that would train a given network, or mean nothing to it.

    Raises:
        UserError: there is one.
    """
    for key, value in asked.items():
        if key == "method" and value != "ce":
            raise UserError(
                f"network method {shown(value)} trains the network, and one that is given "
                "(network.epochs=0) is not trained; leave it out"
            )
        if key == "seed" and value:
            raise UserError(
                "a given network (network.epochs=0) has no seed; those of heads are `head_seeds`"
            )
        if key in OF_TRAINING:
            raise UserError(
                f"network.{key}: a given network (network.epochs=0) is not trained; leave it out"
            )


class HeadSlot(OptimisedSlot):
    """A head retrained on the frozen features of the network."""

    kind: ClassVar[str] = "head"
    epochs: int = Field(40, ge=1)
    """Passes over the features of the training split."""
    lr: float = Field(0.01, gt=0)
    """Learning rate, constant."""
    views: int = Field(4, ge=1)
    """Augmented views of the training split in the feature bank; epoch t reads view t mod
    `views`, so `views` = `epochs` is the published fresh augmentation. Not read with `augment` =
    `none`."""
    bn_mode: Literal["eval", "train"] = "eval"
    """Mode of the frozen extractor's batch normalisation while features are made. `train`
    imitates TST's code, whose running statistics drift (docs/pages/readings.md#frozen-body)."""
    batch_order: Literal["shared", "own"] = "shared"
    """`shared` by all heads of a network (faster), or `own`, drawn from the head's seed."""


class PostHocSlot(MethodSlot):
    """A transform of the logits, fitted on ``calib``."""

    kind: ClassVar[str] = "posthoc"


class TrialSpec(StrictModel):
    """One pipeline: data + network + optional head + optional post-hoc."""

    version: Literal[1] = 1
    data: DataSlot = Field(default_factory=DataSlot)
    network: NetworkSlot
    head: HeadSlot | None = None
    posthoc: PostHocSlot | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        """Refuse slots that are right by themselves and cannot work together."""
        method = METHODS[self.network.method]
        if "stages" in method.needs and not BACKBONES[self.network.backbone].has_stages:
            raise UserError(
                f"network method {method.name!r} runs the backbone stage by stage, which "
                f"{self.network.backbone!r} does not offer; take e.g. small_cnn, resnet18 or "
                "densenet121"
            )
        self._refuse_seen()
        self._fit_import()
        self._refuse_classes()
        start = getattr(self.head.params, "start", None) if self.head else None
        if start == "continued" and not method.trains_own_head:
            raise UserError(
                f"a head cannot continue from the linear head of network method {method.name!r}, "
                "which does not train it; take start=fresh"
            )
        return self

    def _fit_import(self) -> None:
        """Imported data have no network that could be run or trained; refuse what needs one."""
        if self.data.imported is None and self.network.backbone != IMPORTED:
            return
        if self.data.imported is None or self.network.backbone != IMPORTED:
            raise UserError(
                f"imported data and network.backbone={IMPORTED} go together: give "
                "data.imported=NAME, and leave network.backbone out"
            )
        own = {"method", "params", "backbone", "epochs", "seed", "portable", "plugin"}
        for key, info in NetworkSlot.model_fields.items():
            if key not in own and getattr(self.network, key) != info.default:
                raise UserError(
                    f"network.{key}: imported data have no network that could be run; leave it out"
                )
        if self.head is None:
            return
        if self.head.augment != "none" or self.head.bn_mode != "eval":
            raise UserError(
                "imported features are one clean view: head.augment=standard and "
                "head.bn_mode=train need images and a network; leave them out"
            )
        record = self.data.import_record
        if record is not None and not record.has_heads:
            lacks = "features" if not record.width else "the split train"
            raise UserError(
                f"head method {self.head.method!r} is trained on features of train, and what is "
                f"imported has no {lacks}; take post-hoc methods, or import it with them"
            )

    def _refuse_classes(self) -> None:
        """A post-hoc method for another number of classes than the data set has."""
        taken = METHODS[self.posthoc.method].classes if self.posthoc else None
        if self.posthoc is None or taken is None:
            return
        classes = DATASETS[self.data.dataset].as_asked(self.data).classes
        if taken != classes:
            raise UserError(
                f"post-hoc method {self.posthoc.method!r} takes {taken} classes, and "
                f"{self.data.dataset!r} has {classes}; leave it out"
            )

    def _refuse_seen(self) -> None:
        """Refuse to choose on images that published weights were trained on."""
        if self.network.weights is None or not self.data.holds_out_train:
            return
        seen = (BACKBONES[name].trained_on.get(self.network.weights) for name in BACKBONES)
        if self.data.dataset in seen:
            raise UserError(
                f"the weights {self.network.weights} were trained on all training images of "
                f"{self.data.dataset}, so that none is left to choose on; take `holdout` test"
            )

    @classmethod
    def build(cls, **slots: Any) -> Self:
        """Build a spec from dictionaries, e.g. of a result row.

        What is left out is as this program has it, whatever suits the data set: settings that
        somebody asks for go through ``settings.effective``.

        Raises:
            UserError: anything is unknown, of the wrong type or out of range, or the slots do
                not go together; one line.
        """
        try:
            return cls(**slots)
        except ValidationError as error:
            raise UserError(_one_line(error)) from None

    def canonical_json(self) -> str:
        """JSON with sorted keys and (but for what came later) every default written out."""
        return canonical_json(self)

    @property
    def hash(self) -> str:
        """Identity of the trial: 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return content_hash(self)

    @property
    def plugins(self) -> set[str]:
        """Content hashes of the plug-ins that fill its slots."""
        slots = (self.data, self.network, self.head, self.posthoc)
        return {each for slot in slots if slot and slot.plugin for each in slot.plugin.split("+")}

    @property
    def network_id(self) -> str:
        """Identity of the trained network: hash of the data and network slots."""
        # As a trial: one without head and post-hoc has the network's identity for its hash.
        return content_hash(TrialSpec(data=self.data, network=self.network))


SLOTS: dict[str, type[Slot]] = {
    "data": DataSlot,
    "network": NetworkSlot,
    "head": HeadSlot,
    "posthoc": PostHocSlot,
}


def canonical_json(model: BaseModel) -> str:
    """Serialise a model to the one JSON text that its hash is taken of."""
    # No blanks and sorted keys: fields may be declared in another order and no hash moves.
    return json.dumps(model.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def content_hash(model: BaseModel) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a model's canonical JSON."""
    # 64 bits: among the 100,000 trials that a plan may have, two share a hash with a probability
    # below 1e-9.
    return hashlib.sha256(canonical_json(model).encode()).hexdigest()[:16]


def _params(info: MethodInfo, given: dict[str, Any]) -> Params:
    for key in given:
        if key not in info.params.model_fields:
            known = list(info.params.model_fields)
            raise UserError(f"method {info.name!r} has no setting {key!r}{nearest(key, known)}")
    try:
        return info.params(**given)
    except ValidationError as error:
        raise UserError(f"method {info.name!r}: {_one_line(error)}") from None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return (
        f"{where}: {complaint(first)}, got {shown(first['input'])}" if where else complaint(first)
    )
